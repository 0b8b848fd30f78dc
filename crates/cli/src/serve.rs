//! `towline serve`: starts the server.

use crate::output;
use anyhow::Context;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, value_parser};
use std::borrow::Cow;
use std::fmt::Write;
use std::path::PathBuf;
use towline_server::config::{Flag, SETTINGS};
use towline_server::{Server, Settings, logging};

/// Not a setting: a configuration file would adopt at every start.
pub const ADOPT_HELP: &str = "Take the place for buffers over from the store that owns it, for example after a restore. \
                              Objects that only items of that store refer to are deleted";

/// Where the documents put the first token.
const TOKEN_FILE: &str = "ops.token";

/// The flags of `towline serve`: one for each setting of the server, and the configuration file.
#[derive(Debug)]
pub struct ServeArgs {
    config: Option<PathBuf>,
    adopt_buffers: bool,
    /// Names of settings with their values.
    settings: Vec<(&'static str, String)>,
}

impl Args for ServeArgs {
    fn augment_args(command: Command) -> Command {
        let config = Arg::new("config")
            .long("config")
            .value_name("FILE")
            .value_parser(value_parser!(PathBuf))
            .help("Configuration file [default: towline.toml, if it exists]");
        let flags = SETTINGS.iter().map(|setting| {
            let arg = Arg::new(setting.name).long(setting.flag_name()).help(setting.flag_help());
            match setting.flag {
                Flag::Value(name) => arg.value_name(name),
                Flag::Repeated(name) => arg.value_name(name).action(ArgAction::Append),
                Flag::Switch | Flag::SwitchOff(..) => arg.action(ArgAction::SetTrue),
            }
        });
        let adopt =
            Arg::new("adopt_buffers").long("adopt-buffers").action(ArgAction::SetTrue).help(ADOPT_HELP);
        command.arg(config).args(flags).arg(adopt)
    }

    fn augment_args_for_update(command: Command) -> Command {
        ServeArgs::augment_args(command)
    }
}

impl FromArgMatches for ServeArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<ServeArgs, clap::Error> {
        let mut args = ServeArgs { config: None, adopt_buffers: false, settings: Vec::new() };
        args.update_from_arg_matches(matches)?;
        Ok(args)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.config = matches.get_one("config").cloned();
        self.adopt_buffers = matches.get_flag("adopt_buffers");
        let value = |name, flag| match flag {
            Flag::Value(_) | Flag::Repeated(_) => {
                let values: Vec<&str> = matches.get_many::<String>(name)?.map(String::as_str).collect();
                Some(values.join(" "))
            }
            Flag::Switch => matches.get_flag(name).then(|| "true".to_owned()),
            Flag::SwitchOff(..) => matches.get_flag(name).then(|| "false".to_owned()),
        };
        let values = SETTINGS.iter().map(|setting| (setting.name, value(setting.name, setting.flag)));
        self.settings = values.filter_map(|(name, value)| Some((name, value?))).collect();
        Ok(())
    }
}

/// The values of a flag that may be repeated, separated by spaces.
pub fn several(given: &[String]) -> Option<String> {
    (!given.is_empty()).then(|| given.join(" "))
}

/// The environment variables that are valid UTF-8. All settings are.
pub fn environment() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
}

pub fn run(args: ServeArgs) -> anyhow::Result<()> {
    let mut settings = Settings::load(args.config.as_deref(), environment(), &args.settings)?;
    settings.adopt_buffers = args.adopt_buffers;
    logging::start(&settings);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start")?;
    runtime.block_on(async {
        // In a task, so that it may block the thread it is on.
        tokio::spawn(async move {
            let server = Server::open(settings).await?;
            greet(&server);
            server.run().await
        })
        .await
    })??;
    Ok(())
}

/// Where it listens (the first line, for scripts), where the data is, and commands to try.
fn greet(server: &Server) {
    let (settings, program) =
        (server.settings(), std::env::args().next().unwrap_or_else(|| "towline".to_owned()));
    let data = settings.store_description();
    let mut words = format!("listening on {}\ndata in {data}\ntry, in another terminal:\n", server.url());
    let mut variables = Vec::new();
    let url = server.client_url();
    if url != format!("http://{}", towline_api::ADDRESS_DEFAULT) {
        variables.push(format!("TOWLINE_URL={}", quoted(&url)));
    }
    if let Some(files) = settings.tls_files() {
        let cert = std::path::absolute(&files.cert).unwrap_or(files.cert);
        variables.push(format!("TOWLINE_CA_FILE={}", quoted(&cert.to_string_lossy())));
    }
    if settings.requires_tokens() {
        let _ =
            writeln!(words, "  # a file with a token; `{program} token create --help` says how to make one");
        variables.push(format!("TOWLINE_TOKEN_FILE={TOKEN_FILE}"));
    }
    if !variables.is_empty() {
        let _ = writeln!(words, "  export {}", variables.join(" "));
    }
    for command in ["queue create jobs", "queue submit jobs --payload hello", "queue receive jobs"] {
        let _ = writeln!(words, "  {} {command}", quoted(&program));
    }
    // The server also runs if its output is closed.
    let _ = output::text(&words);
}

/// A word of a shell command.
fn quoted(word: &str) -> Cow<'_, str> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%,=".contains(c);
    if word.chars().all(plain) { word.into() } else { format!("'{}'", word.replace('\'', r"'\''")).into() }
}
