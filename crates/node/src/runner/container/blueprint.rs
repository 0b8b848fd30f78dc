//! The description of a container for the engine.

use super::ContainerConfig;
use crate::runner::directory::LaunchDirectory;
use crate::runner::environment::Places;
use crate::runner::instance::InstanceDirectory;
use crate::runner::{Launch, Limits, StartError};
use bollard::models::{
    ContainerCreateBody, HostConfig, HostConfigLogConfig, Mount, MountType, ResourcesUlimits,
};
use rustix::process::{Resource, getrlimit};
use std::collections::HashMap;
use std::fs;
use std::path::Path;

/// The label with the name of the instance.
pub(super) const INSTANCE_LABEL: &str = "towline.node";
/// The label with the root of the instance. Nodes of another root are not ours to clean up.
pub(super) const ROOT_LABEL: &str = "towline.root";
const LAUNCH_LABEL: &str = "towline.launch";

/// Where a container finds the launch directory.
pub(super) const MOUNT: &str = "/towline";
const CLI: &str = "/usr/local/bin/towline";

pub(super) fn container_name(instance: &str, launch: &str) -> String {
    format!("towline-{instance}-{launch}")
}

pub(super) fn blueprint(
    launch: &Launch,
    directory: &LaunchDirectory,
    instance: &InstanceDirectory,
    config: &ContainerConfig,
) -> Result<ContainerCreateBody, StartError> {
    let environment = Places { directory: MOUNT, work: None }.environment(launch, &instance.name);
    let labels = [
        (INSTANCE_LABEL, instance.name.clone()),
        (ROOT_LABEL, text(&instance.root)?),
        (LAUNCH_LABEL, launch.id.clone()),
    ];
    let mut mounts = vec![mount(directory.path(), MOUNT)?];
    if let Some(cli) = &config.cli {
        mounts.push(mount(cli, CLI)?);
    }
    let has_command = !launch.command.is_empty();
    Ok(ContainerCreateBody {
        image: launch.image.clone(),
        entrypoint: has_command.then(|| launch.command.clone()),
        // A command without arguments must not get those of the image.
        cmd: (has_command || !launch.args.is_empty()).then(|| launch.args.clone()),
        env: Some(environment.iter().map(|(name, value)| format!("{name}={value}")).collect()),
        labels: Some(labels.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()),
        attach_stdout: Some(true),
        attach_stderr: Some(true),
        host_config: Some(host_config(launch.limits, mounts, config)),
        ..ContainerCreateBody::default()
    })
}

fn host_config(limits: Limits, mounts: Vec<Mount>, config: &ContainerConfig) -> HostConfig {
    let memory = limits.memory_bytes.map(saturating);
    HostConfig {
        mounts: Some(mounts),
        memory,
        // The same value means no swap.
        memory_swap: memory,
        nano_cpus: limits.cpus.map(|cpus| (cpus * 1e9) as i64),
        pids_limit: limits.processes.map(saturating),
        ulimits: limits.open_files.map(ulimits),
        network_mode: config.network.clone(),
        readonly_rootfs: Some(config.is_read_only),
        tmpfs: config.is_read_only.then(|| HashMap::from([("/tmp".to_owned(), String::new())])),
        privileged: Some(false),
        security_opt: Some(vec!["no-new-privileges".to_owned()]),
        cap_drop: Some(vec!["ALL".to_owned()]),
        cap_add: Some(config.capabilities.clone()),
        // The node reads the output as it comes and stores it itself.
        log_config: Some(HostConfigLogConfig { typ: Some("none".to_owned()), config: None }),
        ..HostConfig::default()
    }
}

/// A mount that the container cannot change. Named pipes can be written all the same.
fn mount(source: &Path, target: &str) -> Result<Mount, StartError> {
    Ok(Mount {
        source: Some(text(source)?),
        target: Some(target.to_owned()),
        typ: Some(MountType::BIND),
        read_only: Some(true),
        ..Mount::default()
    })
}

/// Limits of each process; without one for open files, the engine's own.
///
/// An engine that is given one limit raises the others to numbers that it may not set itself on every machine. So all are given then,
/// and the number of processes is what Linux permits the node.
fn ulimits(open_files: u64) -> Vec<ResourcesUlimits> {
    let pid_max =
        fs::read_to_string("/proc/sys/kernel/pid_max").ok().and_then(|text| text.trim().parse().ok());
    let processes = getrlimit(Resource::Nproc).maximum.unwrap_or(u64::MAX).min(pid_max.unwrap_or(u64::MAX));
    let all = [("core", 0), ("nofile", open_files), ("nproc", processes)];
    let ulimit = |(name, value): (&str, u64)| ResourcesUlimits {
        name: Some(name.to_owned()),
        soft: Some(saturating(value)),
        hard: Some(saturating(value)),
    };
    all.into_iter().map(ulimit).collect()
}

fn saturating(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn text(path: &Path) -> Result<String, StartError> {
    match path.to_str() {
        Some(path) => Ok(path.to_owned()),
        None => Err(StartError::Other(format!("the path {path:?} is not UTF-8; choose another"))),
    }
}
