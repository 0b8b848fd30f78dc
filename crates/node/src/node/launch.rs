//! The launch of a codespec: its command and its environment, with every variable expanded.

use super::Shared;
use crate::runner::{Launch, Limits, PrivateFile, PullPolicy};
use std::collections::BTreeMap;
use std::time::Duration;
use towline_api::compute::{
    self, CodespecBody, ExpandError, LeaseSecret, expand, expand_values, param_variable,
};
use towline_api::params::Params;
use towline_api::{ItemId, LeaseToken};

/// What is launched, besides the codespec.
pub(super) struct Wanted<'a> {
    /// Unique on this node.
    pub(super) id: String,
    pub(super) spec: &'a CodespecBody,
    /// More variables, which replace those of the codespec.
    pub(super) env: &'a BTreeMap<String, String>,
    /// Variables that the codespec may refer to, but not replace.
    pub(super) given: BTreeMap<String, String>,
    pub(super) item: ItemId,
    pub(super) lease: LeaseToken,
}

/// The variables of parameters. JSON strings are given as they are, other values as JSON.
pub(super) fn param_variables(params: &Params) -> BTreeMap<String, String> {
    let value = |json: &str| serde_json::from_str::<String>(json).unwrap_or_else(|_| json.to_owned());
    params.iter().map(|(name, json)| (param_variable(name), value(json.as_str()))).collect()
}

impl Shared {
    pub(super) fn launch(&self, wanted: Wanted<'_>) -> Result<Launch, ExpandError> {
        let Wanted { id, spec, env, given, item, lease } = wanted;
        let token = PrivateFile {
            name: "towline-token".to_owned(),
            contents: LeaseSecret::new(item, lease).text().into_bytes(),
            variable: "TOWLINE_TOKEN_FILE".to_owned(),
        };
        let mut launch = Launch {
            id,
            image: spec.image.clone(),
            command: Vec::new(),
            args: Vec::new(),
            environment: BTreeMap::new(),
            inputs: spec.buffers.inputs.clone(),
            outputs: spec.buffers.outputs.clone(),
            files: vec![token],
            limits: limits(spec),
            pull: match spec.pull.unwrap_or_default() {
                compute::PullPolicy::IfMissing => PullPolicy::IfMissing,
                compute::PullPolicy::Always => PullPolicy::Always,
                compute::PullPolicy::Never => PullPolicy::Never,
            },
            stop_grace: Duration::from_millis(spec.stop_grace().0),
        };
        let mut known = self.runner.variables(&launch);
        if let Some(path) = self.path_with_cli(known.get("PATH")) {
            known.insert("PATH".to_owned(), path);
        }
        known.insert("TOWLINE_URL".to_owned(), self.options.url.clone());
        known.insert("TOWLINE_ID".to_owned(), item.to_string());
        known.insert("TOWLINE_NODE".to_owned(), self.options.name.clone());
        if let Some(file) = self.options.ca_file.as_ref().and_then(|file| file.to_str()) {
            known.insert("TOWLINE_CA_FILE".to_owned(), file.to_owned());
        }
        known.extend(given.clone());
        let own: BTreeMap<String, String> =
            spec.env.iter().chain(env).map(|(name, value)| (name.clone(), value.clone())).collect();
        let mut environment = expand_values(&own, &known)?;
        // What an item brings never replaces what the codespec sets, and the pipes are always the pipes.
        let fixed = self.runner.variables(&launch).into_iter();
        environment.extend(fixed.filter(|(name, _)| name != "PATH" && !own.contains_key(name)));
        let words =
            |words: &[String]| words.iter().map(|word| expand(word, &environment)).collect::<Result<_, _>>();
        launch.command = words(&spec.command)?;
        launch.args = words(&spec.args)?;
        launch.environment = environment;
        Ok(launch)
    }
}

impl Shared {
    /// The search path, with the directory of the program `towline` first.
    fn path_with_cli(&self, path: Option<&String>) -> Option<String> {
        let cli = self.options.cli.as_ref().filter(|cli| cli.ends_with("towline"))?;
        Some(format!("{}:{}", cli.parent()?.to_str()?, path?))
    }
}

fn limits(spec: &CodespecBody) -> Limits {
    let resources = &spec.resources;
    Limits {
        memory_bytes: resources.memory.map(|size| size.0),
        cpus: resources.cpu,
        processes: resources.processes.map(Into::into),
        open_files: resources.open_files.map(Into::into),
    }
}
