//! The order of a queue: `fifo`, `priority`, or `score` with weights.

use crate::invalid::not_one_of;
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

/// Weights of the score. An omitted field has its default.
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

impl TryFrom<OrderBody> for Order {
    type Error = Refusal;

    fn try_from(body: OrderBody) -> Result<Order, Refusal> {
        match body {
            OrderBody::Name(name) => match name.as_str() {
                "fifo" => Ok(Order::Fifo),
                "priority" => Ok(Order::Priority),
                "score" => Ok(Order::Score(Box::default())),
                other => Err(not_one_of("order", other, "fifo, priority, score")),
            },
            OrderBody::Score(order) => Ok(Order::Score(Box::new((*order.score).try_into()?))),
        }
    }
}

impl TryFrom<ScoreBody> for ScoreWeights {
    type Error = Refusal;

    fn try_from(body: ScoreBody) -> Result<ScoreWeights, Refusal> {
        let age_unit = body.age_unit.map(|span| span.into_domain("order.age_unit")).transpose()?;
        let default = ScoreWeights::default();
        Ok(ScoreWeights {
            fee_permille: body.fee_permille.unwrap_or(default.fee_permille),
            age_permille: body.age_permille.unwrap_or(default.age_permille),
            size_permille: body.size_permille.unwrap_or(default.size_permille),
            tier_permille: body.tier_permille.unwrap_or(default.tier_permille),
            fee_half: body.fee_half.unwrap_or(default.fee_half),
            size_half_bytes: body.size_half_bytes.unwrap_or(default.size_half_bytes),
            age_unit: age_unit.unwrap_or(default.age_unit),
            tiers_permille: body.tiers_permille.unwrap_or(default.tiers_permille),
        })
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
