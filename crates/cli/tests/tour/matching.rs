//! Compares lines with expected ones, in which `...` matches any text.

/// Says which line differs.
pub fn compare(expected: &[String], printed: &[&str]) -> Result<(), String> {
    let open = expected.last().is_some_and(|line| line == "...");
    let wanted = &expected[..expected.len() - usize::from(open)];
    for (at, wanted) in wanted.iter().enumerate() {
        match printed.get(at) {
            Some(line) if fits(wanted, line.trim_end()) => {}
            line => return Err(format!("expected {wanted:?}, got {line:?}")),
        }
    }
    match printed.get(wanted.len()) {
        Some(more) if !open => Err(format!("expected nothing more, got {more:?}")),
        _ => Ok(()),
    }
}

fn fits(wanted: &str, line: &str) -> bool {
    let mut pieces = wanted.trim_end().split("...");
    let Some(mut rest) = pieces.next().and_then(|first| line.strip_prefix(first)) else { return false };
    let mut pieces = pieces.peekable();
    while let Some(piece) = pieces.next() {
        let Some(at) = (if pieces.peek().is_none() { ending(rest, piece) } else { rest.find(piece) }) else {
            return false;
        };
        rest = &rest[at + piece.len()..];
    }
    rest.is_empty()
}

fn ending(text: &str, piece: &str) -> Option<usize> {
    text.ends_with(piece).then(|| text.len() - piece.len())
}

#[test]
fn dots_match_any_text() {
    for (wanted, line, fit) in [
        ("abc", "abc", true),
        ("abc", "abcd", false),
        ("a...d", "abcd", true),
        ("a...d", "abc", false),
        ("...", "", true),
        ("...b...", "abc", true),
        ("...b...", "acc", false),
        ("a...a", "a", false),
        ("{\"id\":\"...\",\"n\":1}", "{\"id\":\"x\",\"n\":1}", true),
    ] {
        assert_eq!(fits(wanted, line), fit, "{wanted:?} {line:?}");
    }
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(compare(&lines("a\n..."), &["a", "b", "c"]), Ok(()));
    assert!(compare(&lines("a"), &["a", "b"]).is_err());
    assert!(compare(&lines("a\nb"), &["a"]).is_err());
}
