//! Which slot of a queue belongs to which buffer parameter of a codespec.

use crate::Result;
use crate::error::ComputeError;
use std::collections::BTreeMap;
use towline_domain::{Schema, SlotName};

/// Slots by name; `true` means required. `None`: the queue has no schema and accepts any slots.
type Slots<'a> = Option<&'a BTreeMap<SlotName, bool>>;

fn declared(slots: Slots<'_>) -> String {
    match slots {
        None => "any".to_owned(),
        Some(slots) if slots.is_empty() => "none".to_owned(),
        Some(slots) => slots.keys().map(SlotName::as_str).collect::<Vec<_>>().join(", "),
    }
}

fn has(slots: Slots<'_>, name: &str) -> bool {
    slots.is_none_or(|slots| slots.contains_key(name))
}

/// The parameters by slot. A pair is `slot: parameter`; with `either_way`, also `parameter: slot`, whichever fits by name.
/// Slots and parameters with equal names belong together unless a pair names one of them.
pub(crate) fn map_slots(
    what: &str,
    slots: Slots<'_>,
    parameters: &[String],
    pairs: &BTreeMap<String, String>,
    either_way: bool,
) -> Result<BTreeMap<String, String>> {
    let mut map: BTreeMap<String, String> = BTreeMap::new();
    let known = |name: &str| parameters.iter().any(|parameter| parameter == name);
    for (left, right) in pairs {
        let fits = has(slots, left) && known(right);
        let reversed = either_way && has(slots, right) && known(left);
        let (slot, parameter) = match (fits, reversed) {
            (true, true) if left != right => {
                return Err(ComputeError::Mismatch(format!(
                    "{what} {left}={right} can be read both ways: each is a slot and a parameter; rename one of them"
                )));
            }
            (true, _) => (left, right),
            (false, true) => (right, left),
            (false, false) => {
                return Err(ComputeError::Mismatch(format!(
                    "{what} {left}={right}: the queue has the slots {}, and the codespec the parameters {}",
                    declared(slots),
                    if parameters.is_empty() { "none".to_owned() } else { parameters.join(", ") }
                )));
            }
        };
        if let Some(other) = map.insert(slot.clone(), parameter.clone()) {
            return Err(ComputeError::Mismatch(format!(
                "{what}: slot {slot:?} is mapped to {other:?} and to {parameter:?}"
            )));
        }
    }
    for parameter in parameters {
        let is_mapped = map.contains_key(parameter) || map.values().any(|mapped| mapped == parameter);
        if !is_mapped && has(slots, parameter) {
            map.insert(parameter.clone(), parameter.clone());
        }
    }
    Ok(map)
}

/// Refuses required slots that have no parameter.
pub(crate) fn check_required(
    what: &str,
    queue: &str,
    slots: Slots<'_>,
    map: &BTreeMap<String, String>,
) -> Result<()> {
    let missing =
        slots.into_iter().flatten().find(|(slot, required)| **required && !map.contains_key(slot.as_str()));
    match missing {
        Some((slot, _)) => Err(ComputeError::Mismatch(format!(
            "the {what} slot {:?} of queue {queue:?} is required, and no parameter of the codespec is mapped to it",
            slot.as_str()
        ))),
        None => Ok(()),
    }
}

/// Refuses parameters that have no slot: a run would have nothing to read.
pub(crate) fn check_parameters(
    queue: &str,
    parameters: &[String],
    map: &BTreeMap<String, String>,
) -> Result<()> {
    match parameters.iter().find(|parameter| !map.values().any(|mapped| mapped == *parameter)) {
        Some(parameter) => Err(ComputeError::Mismatch(format!(
            "the codespec reads {parameter:?}, and no input slot of queue {queue:?} is mapped to it"
        ))),
        None => Ok(()),
    }
}

/// The inputs and outputs that a queue declares.
pub(crate) fn slots_of(schema: &Schema) -> (Slots<'_>, Slots<'_>) {
    match schema.is_empty() {
        true => (None, None),
        false => (Some(&schema.inputs), Some(&schema.outputs)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slots(names: &[&str]) -> BTreeMap<SlotName, bool> {
        names.iter().map(|text| Schema::declare(text).unwrap()).collect()
    }

    fn pairs(given: &[(&str, &str)]) -> BTreeMap<String, String> {
        given.iter().map(|(left, right)| ((*left).to_owned(), (*right).to_owned())).collect()
    }

    fn names(given: &[&str]) -> Vec<String> {
        given.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn equal_names_belong_together_unless_a_pair_says_otherwise() {
        let (slots, parameters) = (slots(&["raw", "mask"]), names(&["input", "mask"]));
        let map = map_slots("input mapping", Some(&slots), &parameters, &pairs(&[("raw", "input")]), false)
            .unwrap();
        assert_eq!(map, pairs(&[("raw", "input"), ("mask", "mask")]));
        let map = map_slots("output mapping", Some(&slots), &parameters, &pairs(&[("input", "raw")]), true)
            .unwrap();
        assert_eq!(map, pairs(&[("raw", "input"), ("mask", "mask")]), "parameter=slot");
        let map = map_slots("input mapping", None, &parameters, &pairs(&[]), false).unwrap();
        assert_eq!(map, pairs(&[("input", "input"), ("mask", "mask")]), "a queue without schema");
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let (slots, parameters) = (slots(&["a", "b", "c?"]), names(&["a", "b"]));
        let refused = |given, either_way| {
            map_slots("mapping", Some(&slots), &parameters, &pairs(given), either_way)
                .unwrap_err()
                .to_string()
        };
        assert!(refused(&[("a", "b")], true).contains("both ways"));
        assert!(refused(&[("x", "a")], true).contains("slots a, b, c"));
        assert!(refused(&[("a", "x")], false).contains("parameters a, b"));
        let map = map_slots("mapping", Some(&slots), &names(&["a"]), &pairs(&[]), false).unwrap();
        let error = check_required("input", "q", Some(&slots), &map).unwrap_err().to_string();
        assert!(error.contains("\"b\" of queue \"q\" is required"), "{error}");
        let error = check_parameters("q", &names(&["a", "z"]), &map).unwrap_err().to_string();
        assert!(error.contains("\"z\""), "{error}");
    }
}
