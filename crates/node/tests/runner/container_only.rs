//! What only the container runner does.

use crate::fixture::{Fixture, container_config, eventually, first_line, harness, unique};
use crate::podman::Podman;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use towline_node::runner::{ContainerRunner, InstanceError, Launch, Limits, PullPolicy, Runner, StartError};

#[tokio::test(flavor = "multi_thread")]
async fn a_container_has_no_privileges() {
    let Some(fixture) = Fixture::container().await else { return };
    let ended = fixture.run(fixture.script("grep -E 'Cap(Eff|Bnd)|NoNewPrivs' /proc/self/status")).await;
    let values: Vec<&str> = ended.stdout.lines().filter_map(|line| line.split_whitespace().nth(1)).collect();
    assert_eq!(values, ["0000000000000000", "0000000000000000", "1"], "{ended:?}");
    let launch = Launch { outputs: vec!["out".to_owned()], ..fixture.script("rm \"$OUT_PIPE\"") };
    assert!(!fixture.run(launch).await.exit.is_success());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_of_the_image_runs() {
    let Some(fixture) = Fixture::container().await else { return };
    assert_eq!(fixture.run(fixture.launch(&[])).await.stdout, "from image\n");
    // A command without arguments does not get those of the image.
    assert_eq!(fixture.run(fixture.launch(&["/bin/echo"])).await.stdout, "\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn images_are_found_by_name_or_digest_or_refused() {
    let Some(fixture) = Fixture::container().await else { return };
    let id = fixture.podman().run(&["images", "--no-trunc", "--quiet", "localhost/towline-test"]);
    let launch = Launch { image: Some(id.trim().to_owned()), ..fixture.script("echo found") };
    assert_eq!(fixture.run(launch).await.stdout, "found\n");

    let absent =
        |pull| Launch { image: Some("localhost:1/no/such:3".to_owned()), pull, ..fixture.script("exit 0") };
    let error = fixture.refused(absent(PullPolicy::Never)).await;
    assert!(
        matches!(&error, StartError::ImageAbsent { image } if image == "localhost:1/no/such:3"),
        "{error:?}"
    );
    for pull in [PullPolicy::IfMissing, PullPolicy::Always] {
        let error = fixture.refused(absent(pull)).await;
        assert!(matches!(&error, StartError::ImagePull { .. }), "{error:?}");
        assert!(error.to_string().contains("\"localhost:1/no/such:3\""), "{error}");
    }
    let error = fixture.refused(Launch { image: None, ..fixture.script("exit 0") }).await;
    assert!(matches!(error, StartError::Invalid(_)), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_beyond_its_memory_is_killed() {
    let Some(fixture) = Fixture::container().await else { return };
    let mut launch = fixture.script("awk 'BEGIN { s = \"x\"; for (i = 0; i < 28; i++) s = s s }'; exit $?");
    launch.limits = Limits { memory_bytes: Some(32 << 20), ..Limits::default() };
    let ended = fixture.run(launch).await;
    // Not every engine tells that this was for the memory: Podman 4.3 does not with version 1 of cgroups.
    assert_eq!(ended.exit.code, Some(137), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_root_may_be_read_only_and_the_program_is_mounted() {
    let Some(fixture) = Fixture::container().await else { return };
    let root = tempfile::tempdir().unwrap();
    let mut config = container_config(root.path(), &unique("read-only"), fixture.podman());
    config.is_read_only = true;
    // Any static program will do.
    config.cli = Some("/bin/busybox".into());
    let (instance, runner) = (config.instance.clone(), ContainerRunner::connect(config).await.unwrap());
    let script =
        "touch /file 2> /dev/null && echo written; touch /tmp/file && /usr/local/bin/towline echo both";
    let running = runner.start(fixture.script(script)).await.unwrap();
    let ended = crate::fixture::finish(running, &[]).await;
    assert_eq!(ended.stdout, "", "{ended:?}");
    let words = ["/usr/local/bin/towline", "true"];
    let running = runner.start(fixture.launch(&words)).await.unwrap();
    // Busybox does not know the name by which it was called here: proof that it ran.
    let ended = crate::fixture::finish(running, &[]).await;
    assert!(ended.stderr.contains("applet not found"), "{ended:?}");
    drop(runner);
    eventually("the guardian has cleaned up", || !root.path().join(&instance).exists()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_node_leaves_no_container() {
    let Some(fixture) = Fixture::container().await else { return };
    let root = tempfile::tempdir().unwrap();
    let instance = unique("killed");
    let podman = fixture.podman();
    let mut command = Command::new(harness());
    command.arg("container-node").arg(root.path()).arg(&instance).arg(podman.address());
    command.arg(fixture.image.as_ref().unwrap());
    command.args(["echo ready; sleep 1000", "trap '' TERM; setsid sleep 1000 & echo ready; wait"]);
    let mut node = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(node.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    assert_eq!(podman.containers().matches(&instance).count(), 2);

    node.kill().unwrap();
    node.wait().unwrap();
    let killed = now();
    let is_gone = || !crate::fixture::has_processes(&instance);
    eventually("no process is left", is_gone).await;
    let took = now() - killed;
    assert!(took < Duration::from_secs(2), "the clean-up took {took:?}");
    eventually("nothing is left", || {
        !podman.containers().contains(&instance) && !root.path().join(&instance).exists()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_node_removes_containers_of_its_root_only() {
    let Some(fixture) = Fixture::container().await else { return };
    let podman: &Podman = fixture.podman();
    let root = fixture.root().canonicalize().unwrap();
    let label = |name: &str, value: &str| format!("--label=towline.{name}={value}");
    let (ours, other) = (label("root", root.to_str().unwrap()), label("root", "/somewhere/else"));
    let dead = label("node", "dead");
    let image = fixture.image.as_ref().unwrap();
    for (name, label) in [("of-dead", &ours), ("of-other", &other)] {
        podman.run(&["create", "--network=host", "--name", name, label, &dead, image]);
    }
    let mut running = fixture.start(fixture.script("echo ready; sleep 1000")).await;
    assert_eq!(first_line(&mut running).await, "ready\n");

    let next = unique("next");
    let runner: Arc<dyn Runner> =
        Arc::new(ContainerRunner::connect(container_config(fixture.root(), &next, podman)).await.unwrap());
    let names = podman.containers();
    assert!(!names.contains("of-dead") && names.contains("of-other"), "{names}");
    assert!(names.contains(&fixture.instance), "{names}");
    podman.run(&["rm", "of-other"]);
    drop(runner);
    eventually("the guardian has cleaned up", || !fixture.root().join(&next).exists()).await;
    running.handle.kill();
    running.handle.wait().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_is_away_is_told() {
    let root = tempfile::tempdir().unwrap();
    let config = |engine: &str| towline_node::runner::ContainerConfig {
        root: root.path().to_owned(),
        instance: unique("away"),
        engine: Some(engine.to_owned()),
        guardian: vec![harness().into(), "guardian".into()],
        network: None,
        is_read_only: false,
        capabilities: Vec::new(),
        cli: None,
    };
    for engine in ["unix:///no/such/socket", "http://127.0.0.1:1", "ssh://host"] {
        let error = ContainerRunner::connect(config(engine)).await.unwrap_err();
        assert!(matches!(&error, InstanceError::Engine(StartError::EngineUnreachable { .. })), "{error:?}");
        assert!(error.to_string().contains(engine), "{error}");
    }
}

#[expect(clippy::disallowed_methods, reason = "the promise is in seconds of the machine")]
fn now() -> Instant {
    Instant::now()
}
