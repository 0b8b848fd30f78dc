//! The environment of a run or a replica: names of variables, and `$(VAR)` in commands.

use super::codespec::{CodespecBody, check_variables};
use std::collections::{BTreeMap, BTreeSet};
use towline_domain::Refusal;

/// Variables that every run and replica has.
pub const ALWAYS_SET: [&str; 6] = ["HOME", "PATH", "TMPDIR", "TOWLINE_URL", "TOWLINE_ID", "TOWLINE_NODE"];

/// A command that cannot be expanded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExpandError {
    #[error(
        "{text:?} refers to $({name}), which is not set; set it, or write $$({name}) for the text itself. Set are: {known}"
    )]
    Missing { text: String, name: String, known: String },
    #[error("the values of env refer to each other in a circle: {names}")]
    Circle { names: String },
}

/// Whether a shell and a loader accept the text as the name of a variable.
#[must_use]
pub fn is_variable(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

fn upper(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' }).collect()
}

/// The variable with the path of the named pipe of a buffer parameter.
#[must_use]
pub fn pipe_variable(parameter: &str) -> String {
    format!("{}_PIPE", upper(parameter))
}

/// The variable with the name of the queue that a service binds to a key.
#[must_use]
pub fn queue_variable(key: &str) -> String {
    format!("{}_QUEUE_NAME", upper(key))
}

/// The variable with a parameter of an item. The prefix keeps clients that submit items away from variables that a loader or a
/// shell obeys.
#[must_use]
pub fn param_variable(name: &str) -> String {
    format!("PARAM_{}", upper(name))
}

/// Expands `$(VAR)` with the variables. `$$(VAR)` is the text `$(VAR)`.
pub fn expand(text: &str, variables: &BTreeMap<String, String>) -> Result<String, ExpandError> {
    expand_with(text, |name| variables.get(name).cloned()).map_err(|name| missing(text, name, variables))
}

fn missing(text: &str, name: String, variables: &BTreeMap<String, String>) -> ExpandError {
    let mut known = variables.keys().take(20).cloned().collect::<Vec<_>>().join(", ");
    if variables.len() > 20 {
        known.push_str(", ...");
    }
    if known.is_empty() {
        known.push_str("none");
    }
    ExpandError::Missing { text: text.chars().take(200).collect(), name, known }
}

/// The error is the name of a variable that is not set.
fn expand_with(text: &str, value: impl Fn(&str) -> Option<String>) -> Result<String, String> {
    let mut expanded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        expanded.push_str(&rest[..at]);
        rest = &rest[at..];
        if let Some(literal) = rest.strip_prefix("$$") {
            // Only before a parenthesis: `$$` alone is the process id of a shell.
            expanded.push_str(if literal.starts_with('(') { "$" } else { "$$" });
            rest = literal;
            continue;
        }
        let name = rest.strip_prefix("$(").and_then(|inner| inner.split_once(')'));
        match name.filter(|(name, _)| is_variable(name)) {
            Some((name, after)) => {
                expanded.push_str(&value(name).ok_or_else(|| name.to_owned())?);
                rest = after;
            }
            None => {
                expanded.push('$');
                rest = &rest[1..];
            }
        }
    }
    expanded.push_str(rest);
    Ok(expanded)
}

/// Expands the values of `own` with the variables in `given` and with each other. The result has both.
pub fn expand_values(
    own: &BTreeMap<String, String>,
    given: &BTreeMap<String, String>,
) -> Result<BTreeMap<String, String>, ExpandError> {
    let mut known = given.clone();
    let mut left: Vec<(&String, &String)> = own.iter().collect();
    // A value that refers to a variable of the same name means the given one.
    while !left.is_empty() {
        let (before, mut waiting, mut failed) = (left.len(), Vec::new(), None);
        for (name, text) in left {
            let needs_own =
                |other: &str| other != name && own.contains_key(other) && !known.contains_key(other);
            match expand_with(text, |other| known.get(other).filter(|_| !needs_own(other)).cloned()) {
                Ok(value) => {
                    known.insert(name.clone(), value);
                }
                Err(other) if own.contains_key(&other) && other != *name => waiting.push((name, text)),
                Err(other) => {
                    failed.get_or_insert(missing(text, other, &known));
                }
            }
        }
        if let Some(error) = failed {
            return Err(error);
        }
        if waiting.len() == before {
            let names = waiting.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ");
            return Err(ExpandError::Circle { names });
        }
        left = waiting;
    }
    Ok(known)
}

/// Refuses a command that refers to variables that will not be set. `env` is what a run adds. `given` are the variables besides,
/// and `any_param` says that any parameter may come with an item.
pub fn check_command(
    body: &CodespecBody,
    env: &BTreeMap<String, String>,
    given: &BTreeSet<String>,
    any_param: bool,
) -> Result<(), Refusal> {
    check_variables("env", env)?;
    let own: BTreeMap<String, String> =
        body.env.iter().chain(env).map(|(name, value)| (name.clone(), value.clone())).collect();
    let pipes = body.buffers.inputs.iter().chain(&body.buffers.outputs).map(|name| pipe_variable(name));
    let queues = body.queues.iter().map(|key| queue_variable(key));
    let always = ALWAYS_SET.into_iter().map(str::to_owned);
    let mut known: BTreeMap<String, String> = always
        .chain(pipes)
        .chain(queues)
        .chain(given.iter().cloned())
        .map(|name| (name, String::new()))
        .collect();
    let health = body.health.iter().flat_map(|health| &health.command);
    let words = || body.command.iter().chain(&body.args).chain(health.clone());
    if any_param {
        let params = words()
            .chain(own.values())
            .flat_map(|text| references(text))
            .filter(|name| name.starts_with("PARAM_"));
        known.extend(params.map(|name| (name, String::new())));
    }
    let refused = |error: ExpandError| Refusal::Invalid { what: "command", message: error.to_string() };
    let all = expand_values(&own, &known).map_err(refused)?;
    words().try_for_each(|word| expand(word, &all).map(drop).map_err(refused))
}

/// The names of the variables to which a text refers.
fn references(text: &str) -> BTreeSet<String> {
    let names = std::cell::RefCell::new(BTreeSet::new());
    let found = expand_with(text, |name| {
        names.borrow_mut().insert(name.to_owned());
        Some(String::new())
    });
    drop(found);
    names.into_inner()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn variables_are_expanded_and_escaped() {
        let variables = map(&[("A", "1"), ("B_C", "two words")]);
        for (text, expected) in [
            ("plain", "plain"),
            ("$(A)", "1"),
            ("x$(A)y$(B_C)z", "x1ytwo wordsz"),
            ("$$(A)", "$(A)"),
            ("$$", "$$"),
            ("$A ${A} $( A) $()", "$A ${A} $( A) $()"),
            ("$(A", "$(A"),
            ("a$", "a$"),
            ("$$$(A)", "$$1"),
        ] {
            assert_eq!(expand(text, &variables).as_deref(), Ok(expected), "{text}");
        }
        let error = expand("--x=$(MISSING)", &variables).unwrap_err().to_string();
        assert!(error.contains("$(MISSING)") && error.contains("A, B_C"), "{error}");
    }

    #[test]
    fn values_refer_to_each_other_but_not_in_a_circle() {
        let given = map(&[("IN_PIPE", "/p/in"), ("PATH", "/bin")]);
        let own = map(&[("A", "$(B)!"), ("B", "$(IN_PIPE)"), ("PATH", "/opt:$(PATH)")]);
        let all = expand_values(&own, &given).unwrap();
        assert_eq!(all, map(&[("A", "/p/in!"), ("B", "/p/in"), ("IN_PIPE", "/p/in"), ("PATH", "/opt:/bin")]));
        let circle = expand_values(&map(&[("A", "$(B)"), ("B", "$(A)")]), &given).unwrap_err();
        assert_eq!(circle, ExpandError::Circle { names: "A, B".to_owned() });
        assert!(expand_values(&map(&[("A", "$(NONE)")]), &given).unwrap_err().to_string().contains("NONE"));
    }

    #[test]
    fn names_become_variables_that_no_loader_obeys() {
        assert_eq!(param_variable("LD_PRELOAD"), "PARAM_LD_PRELOAD");
        assert_eq!(param_variable("a b=\n"), "PARAM_A_B__");
        assert_eq!(pipe_variable("raw-signal"), "RAW_SIGNAL_PIPE");
        assert_eq!(queue_variable("requests"), "REQUESTS_QUEUE_NAME");
        assert!(is_variable("_A1") && !is_variable("1A") && !is_variable("") && !is_variable("A-B"));
    }
}
