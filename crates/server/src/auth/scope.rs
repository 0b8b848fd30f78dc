//! Scopes: what a token permits.

use crate::request::excerpt;
use std::fmt;
use std::str::FromStr;
use towline_domain::{QueueName, limits};

/// A right on a queue and its items.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Right {
    Submit,
    Receive,
    Read,
    /// All other rights, and creating, changing and deleting.
    Admin,
}

impl Right {
    const ALL: [Right; 4] = [Right::Submit, Right::Receive, Right::Read, Right::Admin];

    fn name(self) -> &'static str {
        match self {
            Right::Submit => "submit",
            Right::Receive => "receive",
            Right::Read => "read",
            Right::Admin => "admin",
        }
    }

    fn parse(text: &str) -> Option<Right> {
        Right::ALL.into_iter().find(|right| right.name() == text)
    }

    fn includes(self, needed: Right) -> bool {
        self == needed || self == Right::Admin
    }
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A right that does not concern queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Permission {
    ReadBuffers,
    WriteBuffers,
    ReadRecords,
    WriteRecords,
    Publish,
    Subscribe,
    ManageCompute,
}

use Permission::{ManageCompute, Publish, ReadBuffers, ReadRecords, Subscribe, WriteBuffers, WriteRecords};

/// A scope with a fixed name.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NamedScope {
    pub(crate) name: &'static str,
    permissions: &'static [Permission],
}

pub(crate) static NAMED_SCOPES: [NamedScope; 10] = [
    NamedScope { name: "buffer:read", permissions: &[ReadBuffers] },
    NamedScope { name: "buffer:write", permissions: &[WriteBuffers] },
    NamedScope { name: "buffer:*", permissions: &[ReadBuffers, WriteBuffers] },
    NamedScope { name: "kv:read", permissions: &[ReadRecords] },
    NamedScope { name: "kv:write", permissions: &[WriteRecords] },
    NamedScope { name: "kv:*", permissions: &[ReadRecords, WriteRecords] },
    NamedScope { name: "topic:publish", permissions: &[Publish] },
    NamedScope { name: "topic:subscribe", permissions: &[Subscribe] },
    NamedScope { name: "topic:*", permissions: &[Publish, Subscribe] },
    NamedScope { name: "compute:admin", permissions: &[ManageCompute] },
];

impl NamedScope {
    pub(crate) fn find(name: &str) -> Option<&'static NamedScope> {
        NAMED_SCOPES.iter().find(|scope| scope.name == name)
    }
}

/// One scope of a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Scope {
    Admin,
    Queue { pattern: Pattern, right: Right },
    Named(&'static NamedScope),
}

impl FromStr for Scope {
    type Err = String;

    fn from_str(text: &str) -> Result<Scope, String> {
        let wrong = || {
            format!(
                "scope {:?}: use admin, queue:<pattern>:<submit|receive|read|admin>, buffer:<read|write|*>, kv:<read|write|*>, topic:<publish|subscribe|*> or compute:admin",
                excerpt(text)
            )
        };
        // The name of a queue may contain colons, the name of a right does not.
        match text.strip_prefix("queue:").and_then(|rest| rest.rsplit_once(':')) {
            Some((pattern, right)) => {
                let right = Right::parse(right).ok_or_else(wrong)?;
                Ok(Scope::Queue { pattern: pattern.parse()?, right })
            }
            None if text == "admin" => Ok(Scope::Admin),
            None => NamedScope::find(text).map(Scope::Named).ok_or_else(wrong),
        }
    }
}

/// A queue name in which each `*` matches any text, including none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pattern(String);

impl FromStr for Pattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Pattern, String> {
        // With a letter in place of each star it must be a valid queue name.
        let filled = text.replace('*', "x");
        if text.len() > limits::QUEUE_NAME_BYTES_MAX || filled.parse::<QueueName>().is_err() {
            return Err(format!("pattern {:?}: use a queue name, with * for any part of it", excerpt(text)));
        }
        Ok(Pattern(text.to_owned()))
    }
}

impl Pattern {
    fn is_everything(&self) -> bool {
        self.0.bytes().all(|byte| byte == b'*')
    }

    /// The first part is a prefix of the name and the last part a suffix. Each part between stars matches where it first
    /// occurs.
    fn matches(&self, name: &str) -> bool {
        let Some((first, rest)) = self.0.split_once('*') else { return self.0 == name };
        let Some(mut name) = name.strip_prefix(first) else { return false };
        let (middle, last) = rest.rsplit_once('*').unwrap_or(("", rest));
        for part in middle.split('*') {
            let Some(at) = name.find(part) else { return false };
            name = &name[at + part.len()..];
        }
        name.ends_with(last)
    }
}

/// All scopes of a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Access(Vec<Scope>);

impl Access {
    pub(crate) fn new(scopes: Vec<Scope>) -> Access {
        Access(scopes)
    }

    fn any(&self, permits: impl Fn(&Scope) -> bool) -> bool {
        self.0.iter().any(|scope| *scope == Scope::Admin || permits(scope))
    }

    pub(crate) fn queue(&self, queue: &QueueName, needed: Right) -> bool {
        self.any(|scope| match scope {
            Scope::Queue { pattern, right } => right.includes(needed) && pattern.matches(queue.as_str()),
            _ => false,
        })
    }

    /// Whether the right holds for every queue, including queues created later.
    pub(crate) fn every_queue(&self, needed: Right) -> bool {
        self.any(|scope| match scope {
            Scope::Queue { pattern, right } => right.includes(needed) && pattern.is_everything(),
            _ => false,
        })
    }

    /// Whether the right holds for at least one queue name.
    pub(crate) fn some_queue(&self, needed: Right) -> bool {
        self.any(|scope| matches!(scope, Scope::Queue { right, .. } if right.includes(needed)))
    }

    /// Whether the scopes include everything that the named scope permits.
    pub(crate) fn named(&self, needed: &NamedScope) -> bool {
        let permits = |permission: &Permission| {
            self.any(|scope| matches!(scope, Scope::Named(named) if named.permissions.contains(permission)))
        };
        needed.permissions.iter().all(permits)
    }

    pub(crate) fn admin(&self) -> bool {
        self.any(|_| false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(scopes: &[&str]) -> Access {
        Access::new(scopes.iter().map(|scope| scope.parse().unwrap()).collect())
    }

    fn has(access: &Access, name: &str) -> bool {
        access.named(NamedScope::find(name).unwrap())
    }

    fn name(text: &str) -> QueueName {
        text.parse().unwrap()
    }

    #[test]
    fn patterns_match_queue_names() {
        for (pattern, yes, no) in [
            ("jobs", &["jobs"][..], &["job", "jobs2", "xjobs", "JOBS"][..]),
            ("*", &["jobs", "x"], &[]),
            ("a-*", &["a-", "a-b", "a-b-c"], &["a", "b-a-", "aa-"]),
            ("*-a", &["-a", "b-a", "a-a"], &["a", "b-ab"]),
            ("a*b*c", &["abc", "axbxc", "abbcc", "a1b2c3c"], &["ab", "acb", "abcd", "xabc"]),
            ("a*a", &["aa", "aba"], &["a"]),
            ("**x**", &["x", "axb"], &["ab"]),
        ] {
            let pattern: Pattern = pattern.parse().unwrap();
            for name in yes {
                assert!(pattern.matches(name), "{pattern:?} {name}");
            }
            for name in no {
                assert!(!pattern.matches(name), "{pattern:?} {name}");
            }
        }
    }

    #[test]
    fn scopes_are_parsed_and_invalid_scopes_are_refused() {
        for text in [
            "admin",
            "queue:jobs:submit",
            "queue:a-*:admin",
            "queue:*:read",
            "buffer:read",
            "buffer:write",
            "buffer:*",
            "kv:read",
            "kv:write",
            "kv:*",
            "topic:publish",
            "topic:subscribe",
            "topic:*",
            "compute:admin",
        ] {
            let scope = match text.parse::<Scope>().unwrap() {
                Scope::Admin => "admin".to_owned(),
                Scope::Queue { pattern, right } => format!("queue:{}:{right}", pattern.0),
                Scope::Named(scope) => scope.name.to_owned(),
            };
            assert_eq!(scope, text);
        }
        let long = format!("queue:{}:read", "x".repeat(300));
        for text in [
            "",
            "root",
            "queue",
            "queue:jobs",
            "queue:jobs:write",
            "queue::read",
            "queue:a b:read",
            "queue:a/b:read",
            "buffer",
            "kv",
            "kv:admin",
            "topic:read",
            "Admin",
            "admin:",
            "queue:a:read:b",
            &long,
        ] {
            let error = text.parse::<Scope>().unwrap_err();
            assert!(error.contains("use"), "{error}");
        }
    }

    #[test]
    fn a_scope_for_all_equals_the_scopes_of_its_parts() {
        let both = access(&["kv:read", "kv:write"]);
        assert!(has(&both, "kv:*") && has(&access(&["kv:*"]), "kv:read") && !has(&both, "topic:publish"));
        assert!(!has(&access(&["kv:read"]), "kv:*"));
    }

    #[test]
    fn scopes_grant_rights() {
        let worker = access(&["queue:a-*:receive", "buffer:read"]);
        assert!(worker.queue(&name("a-1"), Right::Receive));
        assert!(!worker.queue(&name("a-1"), Right::Submit) && !worker.queue(&name("a-1"), Right::Read));
        assert!(!worker.queue(&name("b"), Right::Receive));
        assert!(has(&worker, "buffer:read") && !has(&worker, "buffer:write") && !worker.admin());
        assert!(!worker.every_queue(Right::Receive));
        let operator = access(&["queue:*:admin"]);
        for right in Right::ALL {
            assert!(operator.queue(&name("x"), right) && operator.every_queue(right));
        }
        assert!(!operator.admin() && !has(&operator, "buffer:read"));
        let admin = access(&["admin"]);
        assert!(
            admin.admin()
                && admin.every_queue(Right::Admin)
                && has(&admin, "buffer:write")
                && has(&admin, "buffer:read")
        );
        let none = access(&[]);
        assert!(!none.admin() && !none.queue(&name("x"), Right::Read));
    }
}
