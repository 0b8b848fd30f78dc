//! Scopes: what a token permits.

use crate::request::excerpt;
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;
use towline_api::compute::SYSTEM_QUEUES;
use towline_domain::{QueueName, limits};

/// What a token can do with a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Right {
    Submit,
    Receive,
    Read,
    Write,
    Delete,
    /// Read and write by id, and create, but neither list nor delete.
    Use,
    Publish,
    Subscribe,
    /// Carry out what a pool has.
    Node,
    /// All other rights on the resource, and creating, changing and deleting.
    Admin,
}

impl Right {
    fn name(self) -> &'static str {
        match self {
            Right::Submit => "submit",
            Right::Receive => "receive",
            Right::Read => "read",
            Right::Write => "write",
            Right::Delete => "delete",
            Right::Use => "use",
            Right::Publish => "publish",
            Right::Subscribe => "subscribe",
            Right::Node => "node",
            Right::Admin => "admin",
        }
    }
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What scopes are about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Resource {
    Queue,
    Group,
    Topic,
    Records,
    Buffers,
    Metrics,
    Compute,
}

/// How scopes name a part of a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// A name in which each `*` stands for any text.
    Pattern,
    /// The start of a key.
    Prefix,
    /// The scope is about all of it.
    Whole,
}

impl Resource {
    const ALL: [Resource; 7] = [
        Resource::Queue,
        Resource::Group,
        Resource::Topic,
        Resource::Records,
        Resource::Buffers,
        Resource::Metrics,
        Resource::Compute,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Resource::Queue => "queue",
            Resource::Group => "group",
            Resource::Topic => "topic",
            Resource::Records => "kv",
            Resource::Buffers => "buffer",
            Resource::Metrics => "metrics",
            Resource::Compute => "compute",
        }
    }

    fn rights(self) -> &'static [Right] {
        match self {
            Resource::Queue => &[Right::Submit, Right::Receive, Right::Read, Right::Admin],
            Resource::Group => &[Right::Read, Right::Admin],
            Resource::Topic => &[Right::Publish, Right::Subscribe],
            Resource::Records => &[Right::Read, Right::Write],
            Resource::Buffers => &[Right::Read, Right::Write, Right::Delete, Right::Use],
            Resource::Metrics => &[Right::Read],
            Resource::Compute => &[Right::Read, Right::Node, Right::Admin],
        }
    }

    fn part(self) -> Part {
        match self {
            Resource::Queue | Resource::Group | Resource::Topic => Part::Pattern,
            Resource::Records => Part::Prefix,
            Resource::Buffers | Resource::Metrics | Resource::Compute => Part::Whole,
        }
    }

    /// The scopes of the resource, for a message.
    fn usage(self) -> String {
        let mut rights: Vec<&str> = self.rights().iter().map(|right| right.name()).collect();
        if self.has_star() {
            rights.push("*");
        }
        let rights = match &rights[..] {
            [one] => (*one).to_owned(),
            several => format!("<{}>", several.join("|")),
        };
        match self.part() {
            Part::Pattern => format!("{}:<pattern>:{rights}", self.name()),
            Part::Prefix => format!("{}:<prefix>:{rights}", self.name()),
            Part::Whole => format!("{}:{rights}", self.name()),
        }
    }

    /// Whether `*` in place of a right stands for all of them. Where there is `admin`, that does.
    fn has_star(self) -> bool {
        self.rights().len() > 1 && !self.rights().contains(&Right::Admin)
    }
}

/// One scope of a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Scope {
    Admin,
    Resource {
        resource: Resource,
        /// `*` for a resource without parts.
        pattern: Pattern,
        /// `None`: every right.
        right: Option<Right>,
    },
}

impl FromStr for Scope {
    type Err = String;

    fn from_str(text: &str) -> Result<Scope, String> {
        if text == "admin" {
            return Ok(Scope::Admin);
        }
        let found = text.split_once(':').and_then(|(name, rest)| {
            let resource = Resource::ALL.into_iter().find(|resource| resource.name() == name)?;
            Some((resource, rest))
        });
        let Some((resource, rest)) = found else {
            let usage: Vec<String> = Resource::ALL.into_iter().map(Resource::usage).collect();
            return Err(format!("scope {:?}: use admin, {}", excerpt(text), usage.join(", ")));
        };
        let wrong = || format!("scope {:?}: use {}", excerpt(text), resource.usage());
        let (part, right) = match resource.part() {
            Part::Whole => ("*", rest),
            Part::Pattern | Part::Prefix => rest.rsplit_once(':').ok_or_else(wrong)?,
        };
        let right = match right {
            "*" if resource.has_star() => None,
            right => Some(*resource.rights().iter().find(|known| known.name() == right).ok_or_else(wrong)?),
        };
        let pattern = match resource.part() {
            Part::Whole => Pattern::everything(),
            Part::Prefix => Pattern::prefix(part)?,
            Part::Pattern if resource == Resource::Group => Pattern::of_text(part)?,
            Part::Pattern => Pattern::of_names(part, resource)?,
        };
        Ok(Scope::Resource { resource, pattern, right })
    }
}

/// A text in which each `*` matches any text, including none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pattern(String);

impl Pattern {
    fn everything() -> Pattern {
        Pattern("*".to_owned())
    }

    /// For names of queues and topics.
    fn of_names(text: &str, resource: Resource) -> Result<Pattern, String> {
        // With a letter in place of each star it must be a valid name.
        let filled = text.replace('*', "x");
        if text.len() > limits::QUEUE_NAME_BYTES_MAX || filled.parse::<QueueName>().is_err() {
            let (shown, name) = (excerpt(text), resource.name());
            return Err(format!("pattern {shown:?}: use a {name} name, with * for any part of it"));
        }
        Ok(Pattern(text.to_owned()))
    }

    /// For groups, whose names are any text.
    fn of_text(text: &str) -> Result<Pattern, String> {
        let max = limits::LABEL_BYTES_MAX;
        match text.len() {
            bytes if (1..=max).contains(&bytes) => Ok(Pattern(text.to_owned())),
            bytes => Err(format!(
                "a pattern of {bytes} bytes; use 1 to {max}, with * for any part of a group's name"
            )),
        }
    }

    /// For keys of records. A `*` at the end is allowed, and nowhere else.
    fn prefix(text: &str) -> Result<Pattern, String> {
        let prefix = text.strip_suffix('*').unwrap_or(text);
        if text.is_empty() || prefix.contains('*') || prefix.len() > limits::RECORD_KEY_BYTES_MAX {
            let max = limits::RECORD_KEY_BYTES_MAX;
            return Err(format!(
                "prefix {:?}: use the start of a key, up to {max} bytes, or * for every key",
                excerpt(text)
            ));
        }
        Ok(Pattern(format!("{prefix}*")))
    }

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

    fn any(&self, of: Resource, needed: Right, permits: impl Fn(&Pattern) -> bool) -> bool {
        self.0.iter().any(|scope| match scope {
            Scope::Admin => true,
            Scope::Resource { resource, pattern, right } => {
                *resource == of
                    && right.is_none_or(|right| right == needed || right == Right::Admin)
                    && permits(pattern)
            }
        })
    }

    /// Whether the right holds for the part of the resource with this name. For records, the name can be the start of keys.
    pub(crate) fn has(&self, resource: Resource, name: &str, right: Right) -> bool {
        self.any(resource, right, |pattern| pattern.matches(name))
    }

    pub(crate) fn queue(&self, queue: &QueueName, right: Right) -> bool {
        if queue.as_str().starts_with(SYSTEM_QUEUES) {
            // An item of a pool is code to run.
            let right = match right {
                Right::Receive => Right::Node,
                Right::Read => Right::Read,
                _ => Right::Admin,
            };
            return self.has(Resource::Compute, "", right);
        }
        self.has(Resource::Queue, queue.as_str(), right)
    }

    /// The right on buffers whose ids the client knows.
    pub(crate) fn buffer_by_id(&self, right: Right) -> bool {
        let uses = right != Right::Delete && self.has(Resource::Buffers, "", Right::Use);
        uses || self.is_node() || self.has(Resource::Buffers, "", right)
    }

    /// Whether the client is a node: only the right itself counts.
    fn is_node(&self) -> bool {
        let is = |scope: &Scope| {
            matches!(scope, Scope::Resource { resource: Resource::Compute, right: Some(Right::Node), .. })
        };
        self.0.iter().any(is)
    }

    /// What a node may do.
    pub(super) fn of_node() -> Access {
        Access(vec![Scope::Resource {
            resource: Resource::Compute,
            pattern: Pattern::everything(),
            right: Some(Right::Node),
        }])
    }

    /// What the holder of a lease in a pool may do: work on these queues, and use buffers.
    pub(super) fn of_queues(queues: &BTreeSet<String>) -> Access {
        let scope = |resource, pattern, right| Scope::Resource { resource, pattern, right: Some(right) };
        let of_queue = |queue: &String| {
            let queue = queue.clone();
            [Right::Receive, Right::Submit, Right::Read]
                .map(|right| scope(Resource::Queue, Pattern(queue.clone()), right))
        };
        let buffers = scope(Resource::Buffers, Pattern::everything(), Right::Use);
        Access(queues.iter().flat_map(of_queue).chain([buffers]).collect())
    }

    /// Whether the right holds for every queue, including queues created later.
    pub(crate) fn every_queue(&self, right: Right) -> bool {
        self.any(Resource::Queue, right, Pattern::is_everything)
    }

    /// Whether the right holds for at least one queue name.
    pub(crate) fn some_queue(&self, right: Right) -> bool {
        let of_pools = right == Right::Receive && self.has(Resource::Compute, "", Right::Node);
        of_pools || self.any(Resource::Queue, right, |_| true)
    }

    /// Whether the right holds for a group: by its name, or because it holds for every queue, since members can be in any queue.
    /// To submit into a group is to change it.
    pub(crate) fn group(&self, group: &str, right: Right) -> bool {
        let of_group = if right == Right::Submit { Right::Admin } else { right };
        self.has(Resource::Group, group, of_group) || self.every_queue(right)
    }

    pub(crate) fn admin(&self) -> bool {
        self.0.contains(&Scope::Admin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(scopes: &[&str]) -> Access {
        Access::new(scopes.iter().map(|scope| scope.parse().unwrap()).collect())
    }

    fn has(access: &Access, resource: Resource, right: Right) -> bool {
        access.has(resource, "", right)
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
            let pattern = Pattern::of_names(pattern, Resource::Queue).unwrap();
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
            "group:batch 7:read",
            "group:a:b-*:admin",
            "buffer:read",
            "buffer:write",
            "buffer:delete",
            "buffer:*",
            "kv:config/:read",
            "kv:a:b:write",
            "kv:config/*:*",
            "kv:*:*",
            "topic:news:publish",
            "topic:*:subscribe",
            "topic:*:*",
            "metrics:read",
            "buffer:use",
            "compute:read",
            "compute:node",
            "compute:admin",
        ] {
            text.parse::<Scope>().unwrap();
        }
        let long = format!("queue:{}:read", "x".repeat(300));
        let long_prefix = format!("kv:{}:read", "x".repeat(600));
        for text in [
            "",
            "root",
            "queue",
            "queue:jobs",
            "queue:jobs:write",
            "queue:jobs:*",
            "queue::read",
            "queue:a b:read",
            "queue:a/b:read",
            "group:read",
            "group::read",
            "group:a:submit",
            "buffer",
            "buffer:admin",
            "buffer:x:read",
            "kv",
            "kv:read",
            "kv::read",
            "kv:a*b:read",
            "kv:a:admin",
            "topic:publish",
            "topic:news:read",
            "metrics:*",
            "Admin",
            "admin:",
            "queue:a:read:b",
            &long,
            &long_prefix,
        ] {
            let error = text.parse::<Scope>().unwrap_err();
            assert!(error.contains("use"), "{text}: {error}");
        }
        for resource in ["queue", "topic"] {
            let error = format!("{resource}:a b:{}", if resource == "queue" { "read" } else { "publish" });
            let error = error.parse::<Scope>().unwrap_err();
            assert!(error.contains(&format!("use a {resource} name")), "{error}");
        }
        let usage = "kv".parse::<Scope>().unwrap_err();
        for part in
            ["queue:<pattern>:<submit|receive|read|admin>", "kv:<prefix>:<read|write|*>", "metrics:read,"]
        {
            assert!(usage.contains(part), "{usage}");
        }
    }

    #[test]
    fn a_prefix_covers_keys_and_longer_prefixes() {
        let config = access(&["kv:config/:read"]);
        let reads = |key: &str| config.has(Resource::Records, key, Right::Read);
        assert!(reads("config/a") && reads("config/") && !reads("config") && !reads("other/config/"));
        assert!(!config.has(Resource::Records, "config/a", Right::Write));
        assert!(access(&["kv:*:*"]).has(Resource::Records, "", Right::Write));
    }

    #[test]
    fn a_group_is_permitted_by_its_name_or_by_every_queue() {
        let own = access(&["group:mine-*:admin", "queue:jobs:submit"]);
        for right in [Right::Read, Right::Admin, Right::Submit] {
            assert!(own.group("mine-1", right) && !own.group("other", right), "{right}");
        }
        assert!(access(&["group:a:read"]).group("a", Right::Read));
        assert!(!access(&["group:a:read"]).group("a", Right::Submit));
        assert!(access(&["queue:*:submit"]).group("a", Right::Submit));
        assert!(!access(&["queue:*:submit"]).group("a", Right::Admin));
    }

    #[test]
    fn scopes_grant_rights() {
        use Resource::{Buffers, Metrics, Topic};
        let worker = access(&["queue:a-*:receive", "buffer:read"]);
        assert!(worker.queue(&name("a-1"), Right::Receive));
        assert!(!worker.queue(&name("a-1"), Right::Submit) && !worker.queue(&name("a-1"), Right::Read));
        assert!(!worker.queue(&name("b"), Right::Receive));
        assert!(
            has(&worker, Buffers, Right::Read) && !has(&worker, Buffers, Right::Write) && !worker.admin()
        );
        assert!(!worker.every_queue(Right::Receive));
        let operator = access(&["queue:*:admin"]);
        for right in [Right::Submit, Right::Receive, Right::Read, Right::Admin] {
            assert!(operator.queue(&name("x"), right) && operator.every_queue(right));
        }
        assert!(
            !operator.admin()
                && !has(&operator, Buffers, Right::Read)
                && !has(&operator, Metrics, Right::Read)
        );
        let all = access(&["buffer:*", "topic:news:*"]);
        assert!(has(&all, Buffers, Right::Delete) && all.has(Topic, "news", Right::Publish));
        assert!(!all.has(Topic, "other", Right::Publish));
        let admin = access(&["admin"]);
        assert!(admin.admin() && admin.every_queue(Right::Admin));
        assert!(
            Resource::ALL
                .into_iter()
                .all(|resource| resource.rights().iter().all(|right| has(&admin, resource, *right)))
        );
        let none = access(&[]);
        assert!(!none.admin() && !none.queue(&name("x"), Right::Read));
    }
}
