//! Files that describe codespecs, runs, services and triggers: YAML, of which JSON is a part.

use crate::exit::Failure;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::io::Read;
use std::path::Path;
use towline_api::compute::{CodespecBody, CodespecKind};

const FILE_BYTES_MAX: u64 = 4 << 20;

/// A description, and the name in it.
pub struct Described<T> {
    pub name: Option<String>,
    pub value: T,
}

/// Reads a codespec: alone, or as the `codespec` of a service or a run. Says which other fields the file has.
pub fn read_codespec(path: &Path) -> Result<(Described<CodespecBody>, Vec<String>), Failure> {
    let mut fields = fields(path)?;
    let name = take_name(path, &mut fields)?;
    let Some(inner) = fields.remove("codespec") else {
        return Ok((Described { name, value: decode(path, fields)? }, Vec::new()));
    };
    let Value::Object(mut inner) = inner else {
        return Err(wrong(path, "codespec: use an object that describes the codespec"));
    };
    if let Some(kind) = fields.remove("kind") {
        inner.entry("kind").or_insert(kind);
    }
    let body: CodespecBody = decode(path, inner)?;
    let others = fields.into_iter().map(|(name, _)| name).collect();
    Ok((Described { name, value: body }, others))
}

/// Reads a description of a service, a run or a trigger; `-` is standard input. It may say which kind its codespec has.
pub fn read_of_kind<T: DeserializeOwned>(path: &Path, kind: CodespecKind) -> Result<Described<T>, Failure> {
    let mut fields = fields(path)?;
    let name = take_name(path, &mut fields)?;
    if let Some(given) = fields.remove("kind")
        && given != kind.name()
    {
        return Err(wrong(path, &format!("kind: {given} is not {}", kind.name())));
    }
    Ok(Described { name, value: decode(path, fields)? })
}

fn fields(path: &Path) -> Result<Map<String, Value>, Failure> {
    let mut text = String::new();
    let refused = |error| Failure::Refused(format!("cannot read {}: {error}", path.display()));
    let read = match path.as_os_str() == "-" {
        true => std::io::stdin().lock().take(FILE_BYTES_MAX + 1).read_to_string(&mut text),
        false => {
            std::fs::File::open(path).map_err(refused)?.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)
        }
    };
    read.map_err(refused)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(wrong(path, &format!("it is larger than {FILE_BYTES_MAX} bytes")));
    }
    let read: Value = serde_saphyr::from_str(&text).map_err(|error| wrong(path, &error.to_string()))?;
    match read {
        Value::Object(fields) => Ok(fields),
        _ => Err(wrong(path, "it does not describe an object; write `name: value` lines")),
    }
}

fn take_name(path: &Path, fields: &mut Map<String, Value>) -> Result<Option<String>, Failure> {
    match fields.remove("name") {
        None => Ok(None),
        Some(Value::String(name)) => Ok(Some(name)),
        Some(other) => Err(wrong(path, &format!("name: {other} is not text"))),
    }
}

fn decode<T: DeserializeOwned>(path: &Path, fields: Map<String, Value>) -> Result<T, Failure> {
    serde_path_to_error::deserialize(Value::Object(fields)).map_err(|error| {
        let place = error.path().to_string();
        match place.as_str() {
            "." => wrong(path, &error.inner().to_string()),
            place => wrong(path, &format!("{place}: {}", error.inner())),
        }
    })
}

fn wrong(path: &Path, why: &str) -> Failure {
    Failure::Usage(format!("{}: {why}", path.display()))
}
