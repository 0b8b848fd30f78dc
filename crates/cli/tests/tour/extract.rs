//! Extracts commands and their expected output from Markdown.

use std::process::{Command, Stdio};

#[derive(Debug, PartialEq, Eq)]
pub struct Step {
    pub command: String,
    pub prints: Vec<String>,
}

/// The commands of a document, in order: those of all blocks that begin with ```` ```sh ```` or ```` ```bash ````, except
/// blocks after a line `<!-- not run: REASON -->`.
pub fn session(text: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut begun = String::new();
    let mut fence = Fence::Outside;
    let mut before = "";
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            fence = match fence {
                Fence::Outside if !matches!(line.trim(), "```sh" | "```bash") || is_left_out(before) => {
                    Fence::Other
                }
                Fence::Outside => Fence::Commands,
                Fence::Commands | Fence::Other => Fence::Outside,
            };
        } else if fence == Fence::Commands {
            if let Some(printed) = line.strip_prefix("# =>") {
                let step = steps.last_mut().expect("nothing has been run that could print");
                step.prints.push(printed.strip_prefix(' ').unwrap_or(printed).to_owned());
            } else if !begun.is_empty() || !(line.trim().is_empty() || line.starts_with('#')) {
                begun.push_str(line);
                if is_whole(&begun) {
                    steps.push(Step { command: std::mem::take(&mut begun), prints: Vec::new() });
                } else {
                    begun.push('\n');
                }
            }
        }
        if !line.trim().is_empty() {
            before = line;
        }
    }
    assert_eq!(begun, "", "a command without an end");
    steps
}

#[derive(PartialEq, Eq)]
enum Fence {
    Outside,
    Commands,
    Other,
}

fn is_left_out(line: &str) -> bool {
    let reason = line.trim().strip_prefix("<!-- not run: ").and_then(|rest| rest.strip_suffix(" -->"));
    reason.is_some_and(|reason| !reason.trim().is_empty())
}

/// Whether bash would run the text, or wait for more.
fn is_whole(command: &str) -> bool {
    !command.ends_with('\\')
        && Command::new("bash").args(["-n", "-c", command]).stderr(Stdio::null()).status().unwrap().success()
}

#[test]
fn commands_and_their_output_are_separated() {
    let text = "before\n<!-- not run: it has no end -->\n\n```sh\nnot this\n```\nwords\n```sh\n# a remark\na=1\necho $a \\\n  2\n# => 1 2\n\nfor x in 1 2; do\n  echo $x\ndone\n# => 1\n# => 2\n```\n```text\nnor this\n```\n```bash\ntrue\n```\nafter";
    let step = |command: &str, prints: &[&str]| Step {
        command: command.to_owned(),
        prints: prints.iter().map(|line| (*line).to_owned()).collect(),
    };
    let expected = vec![
        step("a=1", &[]),
        step("echo $a \\\n  2", &["1 2"]),
        step("for x in 1 2; do\n  echo $x\ndone", &["1", "2"]),
        step("true", &[]),
    ];
    assert_eq!(session(text), expected);
    assert_eq!(session("no commands"), []);
}
