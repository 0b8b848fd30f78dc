//! The program that tests start and kill: a shim, a guardian, and a node with some commands.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;
use towline_node::runner::{
    ContainerConfig, ContainerRunner, Launch, Limits, ProcessConfig, ProcessRunner, PullPolicy, Runner,
    exec_shim, guard,
};

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    let role = args.next().unwrap_or_default();
    let ended = match role.to_str() {
        Some("shim") => exec_shim(args).map(|_| ()).map_err(|error| error.to_string()),
        Some("guardian") => guard(args).map_err(|error| error.to_string()),
        Some("node") => node(args, false).map_err(|error| error.to_string()),
        Some("container-node") => node(args, true).map_err(|error| error.to_string()),
        _ => Err("the role is `shim`, `guardian`, `node` or `container-node`".to_owned()),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "{error}");
            ExitCode::from(127)
        }
    }
}

/// Starts a shell for each script, prints a line when all run, and works until it is killed. The arguments are the root, the instance,
/// for containers the engine and the image, and the scripts.
fn node(
    mut args: impl Iterator<Item = OsString>,
    in_containers: bool,
) -> Result<(), Box<dyn std::error::Error>> {
    let mut next = || args.next().and_then(|arg| arg.into_string().ok());
    let (Some(root), Some(instance)) = (next(), next()) else {
        return Err("a root and an instance are missing".into());
    };
    let (root, program) = (root.into(), |role: &str| vec!["/proc/self/exe".into(), role.into()]);
    let (shim, guardian) = (program("shim"), program("guardian"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let (runner, image): (Box<dyn Runner>, _) = if in_containers {
            let (engine, image) = (next(), next());
            let config = ContainerConfig {
                root,
                instance,
                engine,
                guardian,
                network: Some("host".to_owned()),
                is_read_only: false,
                capabilities: Vec::new(),
                cli: None,
            };
            (Box::new(ContainerRunner::connect(config).await?), image)
        } else {
            (Box::new(ProcessRunner::new(ProcessConfig { root, instance, shim, guardian })?), None)
        };
        let mut all = Vec::new();
        while let Some(script) = next() {
            let launch = Launch { image: image.clone(), ..launch(format!("node-{}", all.len()), script) };
            let mut running = runner.start(launch).await?;
            let mut first = [0; 1];
            tokio::io::AsyncReadExt::read_exact(&mut running.stdout, &mut first).await?;
            all.push(running);
        }
        writeln!(io::stdout(), "ready")?;
        for running in &all {
            running.handle.wait().await;
        }
        std::future::pending().await
    })
}

fn launch(id: String, script: String) -> Launch {
    Launch {
        id,
        image: None,
        command: vec!["/bin/sh".to_owned(), "-c".to_owned(), script],
        args: Vec::new(),
        environment: BTreeMap::new(),
        inputs: Vec::new(),
        outputs: Vec::new(),
        files: Vec::new(),
        limits: Limits::default(),
        pull: PullPolicy::default(),
        stop_grace: Duration::from_secs(1),
    }
}
