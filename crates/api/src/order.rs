//! The order of a queue: `fifo`, `priority`, or `score` with its weights.

use crate::object::{NameOrObject, name_or_object, object};
use crate::span::Span;
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;
use towline_domain::{Order, Refusal, ScoreWeights};
use utoipa::ToSchema;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(untagged)]
pub enum OrderBody {
    /// `fifo`, `priority` or `score`.
    Name(String),
    Score(ScoreOrder),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ScoreOrder {
    #[serde(deserialize_with = "object")]
    pub score: Box<ScoreBody>,
}

impl<'de> Deserialize<'de> for OrderBody {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<OrderBody, D::Error> {
        name_or_object("`fifo`, `priority`, `score` or {\"score\": {...}}", deserializer).map(|read| {
            match read {
                NameOrObject::Name(name) => OrderBody::Name(name),
                NameOrObject::Object(score) => OrderBody::Score(score),
            }
        })
    }
}

/// What is left out has its default.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ScoreBody {
    pub fee_permille: Option<u32>,
    pub age_permille: Option<u32>,
    pub size_permille: Option<u32>,
    pub tier_permille: Option<u32>,
    pub fee_half: Option<u64>,
    pub size_half_bytes: Option<u64>,
    pub age_unit: Option<Span>,
    pub tiers_permille: Option<BTreeMap<String, u32>>,
}

impl OrderBody {
    pub fn get(self) -> Result<Order, Refusal> {
        match self {
            OrderBody::Name(name) => match name.as_str() {
                "fifo" => Ok(Order::Fifo),
                "priority" => Ok(Order::Priority),
                "score" => Ok(Order::Score(Box::default())),
                other => {
                    let shown: String = other.chars().take(64).collect();
                    let message = format!("{shown:?} is not one of fifo, priority, score");
                    Err(Refusal::Invalid { what: "order", message })
                }
            },
            OrderBody::Score(order) => order.score.get(),
        }
    }
}

impl ScoreBody {
    fn get(self) -> Result<Order, Refusal> {
        let age_unit = self.age_unit.map(|span| span.get("order.age_unit")).transpose()?;
        let plain = ScoreWeights::default();
        Ok(Order::Score(Box::new(ScoreWeights {
            fee_permille: self.fee_permille.unwrap_or(plain.fee_permille),
            age_permille: self.age_permille.unwrap_or(plain.age_permille),
            size_permille: self.size_permille.unwrap_or(plain.size_permille),
            tier_permille: self.tier_permille.unwrap_or(plain.tier_permille),
            fee_half: self.fee_half.unwrap_or(plain.fee_half),
            size_half_bytes: self.size_half_bytes.unwrap_or(plain.size_half_bytes),
            age_unit: age_unit.unwrap_or(plain.age_unit),
            tiers_permille: self.tiers_permille.unwrap_or(plain.tiers_permille),
        })))
    }
}

impl From<&Order> for OrderBody {
    fn from(order: &Order) -> OrderBody {
        match order {
            Order::Fifo => OrderBody::Name("fifo".to_owned()),
            Order::Priority => OrderBody::Name("priority".to_owned()),
            Order::Score(weights) => OrderBody::Score(ScoreOrder {
                score: Box::new(ScoreBody {
                    fee_permille: Some(weights.fee_permille),
                    age_permille: Some(weights.age_permille),
                    size_permille: Some(weights.size_permille),
                    tier_permille: Some(weights.tier_permille),
                    fee_half: Some(weights.fee_half),
                    size_half_bytes: Some(weights.size_half_bytes),
                    age_unit: Some(weights.age_unit.into()),
                    tiers_permille: Some(weights.tiers_permille.clone()),
                }),
            }),
        }
    }
}
