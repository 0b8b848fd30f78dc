//! The slots and parameters that a queue declares for its items and their results.

use crate::id::{ItemId, LeaseToken};
use crate::json::Json;
use crate::limits;
use crate::name::{BufferId, SlotName};
use crate::refusal::Refusal;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Slots and parameters by name. `true` means required.
///
/// A queue without a schema accepts any parameters and buffers. A queue with a schema accepts exactly what it declares.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Schema {
    pub inputs: BTreeMap<SlotName, bool>,
    pub outputs: BTreeMap<SlotName, bool>,
    pub input_params: BTreeMap<SlotName, bool>,
    pub output_params: BTreeMap<SlotName, bool>,
}

impl Schema {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.inputs.is_empty()
            && self.outputs.is_empty()
            && self.input_params.is_empty()
            && self.output_params.is_empty()
    }

    /// The names of the fields in which another schema differs.
    pub fn differences(&self, other: &Schema) -> Vec<&'static str> {
        let Schema { inputs, outputs, input_params, output_params } = self;
        let fields = [
            ("schema.inputs", *inputs == other.inputs),
            ("schema.outputs", *outputs == other.outputs),
            ("schema.input_params", *input_params == other.input_params),
            ("schema.output_params", *output_params == other.output_params),
        ];
        fields.into_iter().filter(|(_, same)| !same).map(|(name, _)| name).collect()
    }

    /// Parses a declaration: `name` is required, `name?` is not.
    pub fn declare(text: &str) -> Result<(SlotName, bool), Refusal> {
        let (name, required) = match text.strip_suffix('?') {
            Some(name) => (name, false),
            None => (text, true),
        };
        match name.parse() {
            Ok(name) => Ok((name, required)),
            Err(error) => Err(Refusal::invalid("schema", error.to_string())),
        }
    }

    pub fn check(&self) -> Result<(), Refusal> {
        for (what, slots) in [
            ("schema.inputs", &self.inputs),
            ("schema.outputs", &self.outputs),
            ("schema.input_params", &self.input_params),
            ("schema.output_params", &self.output_params),
        ] {
            if slots.len() > limits::SLOTS_MAX {
                let message = format!("{} declared; at most {} are allowed", slots.len(), limits::SLOTS_MAX);
                return Err(Refusal::invalid(what, message));
            }
        }
        Ok(())
    }

    pub fn check_inputs(
        &self,
        inputs: &BTreeMap<SlotName, BufferId>,
        params: &BTreeMap<String, Json>,
    ) -> Result<(), Refusal> {
        check_params_size("params", params)?;
        check_slots(inputs.len())?;
        if self.is_empty() {
            return Ok(());
        }
        check_exact("input", &self.inputs, inputs.keys().map(SlotName::as_str))?;
        check_exact("input parameter", &self.input_params, params.keys().map(String::as_str))
    }

    /// The names of the buffers of one attempt, one for each output slot. `None` without output slots.
    #[must_use]
    pub fn output_buffers(&self, id: ItemId, token: LeaseToken) -> Option<Box<BTreeMap<SlotName, BufferId>>> {
        let buffers = self.outputs.keys().map(|slot| (slot.clone(), BufferId::of_attempt(id, slot, token)));
        (!self.outputs.is_empty()).then(|| Box::new(buffers.collect()))
    }

    pub fn check_outputs(
        &self,
        outputs: &BTreeMap<SlotName, BufferId>,
        params: &BTreeMap<String, Json>,
    ) -> Result<(), Refusal> {
        check_params_size("output_params", params)?;
        check_slots(outputs.len())?;
        if self.is_empty() {
            return Ok(());
        }
        check_exact("output", &self.outputs, outputs.keys().map(SlotName::as_str))?;
        check_exact("output parameter", &self.output_params, params.keys().map(String::as_str))
    }
}

fn check_slots(count: usize) -> Result<(), Refusal> {
    if count > limits::SLOTS_MAX {
        return Err(Refusal::invalid("slots", format!("{count} slots; use at most {}", limits::SLOTS_MAX)));
    }
    Ok(())
}

fn check_exact<'a>(
    what: &'static str,
    declared: &BTreeMap<SlotName, bool>,
    given: impl Iterator<Item = &'a str> + Clone,
) -> Result<(), Refusal> {
    let names = || {
        let list: Vec<&str> = declared.keys().map(SlotName::as_str).collect();
        if list.is_empty() { "none".to_owned() } else { list.join(", ") }
    };
    for name in given.clone() {
        if !declared.contains_key(name) {
            let message = format!("unknown {what} {name:?}; the queue declares: {}", names());
            return Err(Refusal::SchemaMismatch { message });
        }
    }
    for (name, &required) in declared {
        if required && !given.clone().any(|other| other == name.as_str()) {
            let message =
                format!("{what} {name:?} is missing; the queue declares: {}", names(), name = name.as_str());
            return Err(Refusal::SchemaMismatch { message });
        }
    }
    Ok(())
}

fn check_params_size(what: &'static str, params: &BTreeMap<String, Json>) -> Result<(), Refusal> {
    if params.len() > limits::PARAMS_MAX {
        let message = format!("{} parameters; use at most {}", params.len(), limits::PARAMS_MAX);
        return Err(Refusal::invalid(what, message));
    }
    let mut total = 0;
    for (name, value) in params {
        if name.is_empty() || name.len() > limits::PARAM_NAME_BYTES_MAX {
            let message =
                format!("a name of {} bytes; use 1 to {}", name.len(), limits::PARAM_NAME_BYTES_MAX);
            return Err(Refusal::invalid(what, message));
        }
        total += name.len() + value.as_str().len();
    }
    if total > limits::PARAMS_BYTES_MAX {
        return Err(Refusal::TooLarge { what, bytes: total as u64, max: limits::PARAMS_BYTES_MAX as u64 });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema(inputs: &[&str], params: &[&str]) -> Schema {
        let declare = |list: &[&str]| list.iter().map(|text| Schema::declare(text).unwrap()).collect();
        Schema { inputs: declare(inputs), input_params: declare(params), ..Schema::default() }
    }

    fn params(names: &[&str]) -> BTreeMap<String, Json> {
        names.iter().map(|name| ((*name).to_owned(), Json::string("v"))).collect()
    }

    fn inputs(names: &[&str]) -> BTreeMap<SlotName, BufferId> {
        names.iter().map(|name| (name.parse().unwrap(), "b1".parse().unwrap())).collect()
    }

    #[test]
    fn without_a_schema_anything_is_accepted() {
        assert_eq!(Schema::default().check_inputs(&inputs(&["x"]), &params(&["Any Key!"])), Ok(()));
    }

    #[test]
    fn with_a_schema_exactly_the_declared_names_are_accepted() {
        let schema = schema(&["raw", "cal?"], &["level"]);
        assert_eq!(schema.check_inputs(&inputs(&["raw"]), &params(&["level"])), Ok(()));
        assert_eq!(schema.check_inputs(&inputs(&["raw", "cal"]), &params(&["level"])), Ok(()));
        for (slots, keys, names) in [
            (&["cal"][..], &["level"][..], "\"raw\" is missing"),
            (&["raw"], &[], "\"level\" is missing"),
            (&["raw", "other"], &["level"], "unknown input \"other\""),
            (&["raw"], &["level", "extra"], "unknown input parameter \"extra\""),
        ] {
            let message = schema.check_inputs(&inputs(slots), &params(keys)).unwrap_err().to_string();
            assert!(message.contains(names), "{message}");
        }
    }

    #[test]
    fn an_optional_slot_is_declared_with_a_question_mark() {
        assert!(!Schema::declare("cal?").unwrap().1);
        assert!(Schema::declare("cal").unwrap().1);
        assert!(Schema::declare("?").is_err());
    }
}
