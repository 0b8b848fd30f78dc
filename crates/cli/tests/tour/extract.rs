//! Extracts commands and their expected output from Markdown.

use std::process::{Command, Stdio};

#[derive(Debug, PartialEq, Eq)]
pub struct Step {
    pub command: String,
    pub prints: Vec<String>,
}

/// `None`: the document has no tour.
pub fn tour(text: &str) -> Option<Vec<Step>> {
    let (_, rest) = text.split_once("<!-- tour -->")?;
    let (tour, _) = rest.split_once("<!-- /tour -->").expect("a tour without an end");
    let mut steps: Vec<Step> = Vec::new();
    let mut begun = String::new();
    let mut inside = false;
    for line in tour.lines() {
        if line.trim_start().starts_with("```") {
            inside = !inside && line.trim() == "```sh";
            continue;
        }
        if !inside {
            continue;
        }
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
    assert_eq!(begun, "", "a command without an end");
    (!steps.is_empty()).then_some(steps)
}

/// Whether bash would run the text, or wait for more.
fn is_whole(command: &str) -> bool {
    !command.ends_with('\\')
        && Command::new("bash").args(["-n", "-c", command]).stderr(Stdio::null()).status().unwrap().success()
}

#[test]
fn commands_and_their_output_are_separated() {
    let text = "before\n```sh\nnot this\n```\n<!-- tour -->\nwords\n```sh\n# a remark\na=1\necho $a \\\n  2\n# => 1 2\n\nfor x in 1 2; do\n  echo $x\ndone\n# => 1\n# => 2\n```\n```text\nnor this\n```\n<!-- /tour -->\nafter";
    let step = |command: &str, prints: &[&str]| Step {
        command: command.to_owned(),
        prints: prints.iter().map(|line| (*line).to_owned()).collect(),
    };
    let expected = vec![
        step("a=1", &[]),
        step("echo $a \\\n  2", &["1 2"]),
        step("for x in 1 2; do\n  echo $x\ndone", &["1", "2"]),
    ];
    assert_eq!(tour(text), Some(expected));
    assert_eq!(tour("no tour"), None);
}
