//! What a token allows, and what a route needs.

use std::fmt;
use std::str::FromStr;
use towline_domain::{QueueName, limits};

/// What can be done with a queue and its items.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Right {
    Submit,
    Receive,
    Read,
    /// All of these, and to make, change and delete.
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

    fn allows(self, needed: Right) -> bool {
        self == needed || self == Right::Admin
    }
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One line of what a token allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Scope {
    Admin,
    Queue { pattern: Pattern, right: Right },
    BufferRead,
    BufferWrite,
    Buffer,
    KvRead,
    KvWrite,
    Kv,
    TopicPublish,
    TopicSubscribe,
    Topic,
    ComputeAdmin,
}

impl FromStr for Scope {
    type Err = String;

    fn from_str(text: &str) -> Result<Scope, String> {
        let wrong = || {
            let shown: String = text.chars().take(100).collect();
            format!(
                "scope {shown:?}: use admin, queue:<pattern>:<submit|receive|read|admin>, buffer:<read|write|*>, kv:<read|write|*>, topic:<publish|subscribe|*> or compute:admin"
            )
        };
        match text.split(':').collect::<Vec<_>>()[..] {
            ["admin"] => Ok(Scope::Admin),
            ["queue", pattern, right] => {
                let right = Right::parse(right).ok_or_else(wrong)?;
                Ok(Scope::Queue { pattern: pattern.parse()?, right })
            }
            ["buffer", "read"] => Ok(Scope::BufferRead),
            ["buffer", "write"] => Ok(Scope::BufferWrite),
            ["buffer", "*"] => Ok(Scope::Buffer),
            ["kv", "read"] => Ok(Scope::KvRead),
            ["kv", "write"] => Ok(Scope::KvWrite),
            ["kv", "*"] => Ok(Scope::Kv),
            ["topic", "publish"] => Ok(Scope::TopicPublish),
            ["topic", "subscribe"] => Ok(Scope::TopicSubscribe),
            ["topic", "*"] => Ok(Scope::Topic),
            ["compute", "admin"] => Ok(Scope::ComputeAdmin),
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scope::Admin => f.write_str("admin"),
            Scope::Queue { pattern, right } => write!(f, "queue:{}:{right}", pattern.0),
            Scope::BufferRead => f.write_str("buffer:read"),
            Scope::BufferWrite => f.write_str("buffer:write"),
            Scope::Buffer => f.write_str("buffer:*"),
            Scope::KvRead => f.write_str("kv:read"),
            Scope::KvWrite => f.write_str("kv:write"),
            Scope::Kv => f.write_str("kv:*"),
            Scope::TopicPublish => f.write_str("topic:publish"),
            Scope::TopicSubscribe => f.write_str("topic:subscribe"),
            Scope::Topic => f.write_str("topic:*"),
            Scope::ComputeAdmin => f.write_str("compute:admin"),
        }
    }
}

/// A queue's name in which `*` stands for anything, also for nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pattern(String);

impl FromStr for Pattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Pattern, String> {
        // With letters for stars it must be a name.
        let filled = text.replace('*', "x");
        if text.len() > limits::QUEUE_NAME_BYTES_MAX || filled.parse::<QueueName>().is_err() {
            let shown: String = text.chars().take(100).collect();
            return Err(format!("pattern {shown:?}: use the name of a queue, with * for any part of it"));
        }
        Ok(Pattern(text.to_owned()))
    }
}

impl Pattern {
    fn is_everything(&self) -> bool {
        self.0.bytes().all(|byte| byte == b'*')
    }

    /// Each part between stars is taken where it first occurs; the first part begins the name, the last one ends it.
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

/// What a caller may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Access(Vec<Scope>);

impl Access {
    pub(crate) fn new(scopes: Vec<Scope>) -> Access {
        Access(scopes)
    }

    fn any(&self, allows: impl Fn(&Scope) -> bool) -> bool {
        self.0.iter().any(|scope| *scope == Scope::Admin || allows(scope))
    }

    pub(crate) fn queue(&self, queue: &QueueName, needed: Right) -> bool {
        self.any(|scope| match scope {
            Scope::Queue { pattern, right } => right.allows(needed) && pattern.matches(queue.as_str()),
            _ => false,
        })
    }

    /// Whether it holds of every queue, also of those to come.
    pub(crate) fn every_queue(&self, needed: Right) -> bool {
        self.any(|scope| match scope {
            Scope::Queue { pattern, right } => right.allows(needed) && pattern.is_everything(),
            _ => false,
        })
    }

    /// Whether it holds of any queue at all.
    pub(crate) fn some_queue(&self, needed: Right) -> bool {
        self.any(|scope| matches!(scope, Scope::Queue { right, .. } if right.allows(needed)))
    }

    pub(crate) fn read_buffers(&self) -> bool {
        self.any(|scope| matches!(scope, Scope::Buffer | Scope::BufferRead))
    }

    pub(crate) fn write_buffers(&self) -> bool {
        self.any(|scope| matches!(scope, Scope::Buffer | Scope::BufferWrite))
    }

    pub(crate) fn read_records(&self) -> bool {
        self.any(|scope| matches!(scope, Scope::Kv | Scope::KvRead))
    }

    pub(crate) fn write_records(&self) -> bool {
        self.any(|scope| matches!(scope, Scope::Kv | Scope::KvWrite))
    }

    pub(crate) fn publish(&self) -> bool {
        self.any(|scope| matches!(scope, Scope::Topic | Scope::TopicPublish))
    }

    pub(crate) fn subscribe(&self) -> bool {
        self.any(|scope| matches!(scope, Scope::Topic | Scope::TopicSubscribe))
    }

    pub(crate) fn admin(&self) -> bool {
        self.any(|_| false)
    }
}

/// What a route needs, as its description says under `security`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Needs {
    /// Not even a token.
    Nothing,
    /// A token, whatever it allows: the route itself looks at what that is.
    Token,
    /// On the queue in the path.
    Queue(Right),
    /// On the queue of the item in the path.
    Item(Right),
    /// On the queue that the schedule in the path submits to. One that is not there yet has none: the route itself looks at
    /// the one it is given.
    Schedule(Right),
    /// On the queues of the items in the body, which the route itself looks at one by one.
    Each(Right),
    EveryQueue(Right),
    ReadBuffers,
    WriteBuffers,
    /// Both.
    CopyBuffers,
    ReadRecords,
    WriteRecords,
    Publish,
    Subscribe,
    Admin,
}

impl Needs {
    const ALL: [Needs; 24] = [
        Needs::Token,
        Needs::Queue(Right::Submit),
        Needs::Queue(Right::Receive),
        Needs::Queue(Right::Read),
        Needs::Queue(Right::Admin),
        Needs::Item(Right::Submit),
        Needs::Item(Right::Receive),
        Needs::Item(Right::Read),
        Needs::Item(Right::Admin),
        Needs::Schedule(Right::Submit),
        Needs::Schedule(Right::Read),
        Needs::Each(Right::Read),
        Needs::Each(Right::Receive),
        Needs::Each(Right::Admin),
        Needs::EveryQueue(Right::Read),
        Needs::EveryQueue(Right::Admin),
        Needs::ReadBuffers,
        Needs::WriteBuffers,
        Needs::CopyBuffers,
        Needs::ReadRecords,
        Needs::WriteRecords,
        Needs::Publish,
        Needs::Subscribe,
        Needs::Admin,
    ];

    /// From the names in a description.
    pub(crate) fn parse(name: &str) -> Option<Needs> {
        Needs::ALL.into_iter().find(|needs| needs.to_string() == name)
    }

    /// Whether it is an act that the audit log tells of.
    pub(crate) fn is_administrative(self) -> bool {
        use Needs::{Admin, Each, EveryQueue, Item, Queue};
        matches!(
            self,
            Admin | Queue(Right::Admin) | Item(Right::Admin) | Each(Right::Admin) | EveryQueue(Right::Admin)
        )
    }
}

impl fmt::Display for Needs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Needs::Nothing => f.write_str("nothing"),
            Needs::Token => f.write_str("any"),
            Needs::Queue(right) => write!(f, "queue:{{queue}}:{right}"),
            Needs::Item(right) => write!(f, "queue:{{queue of the item}}:{right}"),
            Needs::Schedule(right) => write!(f, "queue:{{queue of the schedule}}:{right}"),
            Needs::Each(right) => write!(f, "queue:{{queue of each item}}:{right}"),
            Needs::EveryQueue(right) => write!(f, "queue:*:{right}"),
            Needs::ReadBuffers => f.write_str("buffer:read"),
            Needs::WriteBuffers => f.write_str("buffer:write"),
            Needs::CopyBuffers => f.write_str("buffer:*"),
            Needs::ReadRecords => f.write_str("kv:read"),
            Needs::WriteRecords => f.write_str("kv:write"),
            Needs::Publish => f.write_str("topic:publish"),
            Needs::Subscribe => f.write_str("topic:subscribe"),
            Needs::Admin => f.write_str("admin"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(scopes: &[&str]) -> Access {
        Access::new(scopes.iter().map(|scope| scope.parse().unwrap()).collect())
    }

    fn name(text: &str) -> QueueName {
        text.parse().unwrap()
    }

    #[test]
    fn patterns() {
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
    fn scopes_are_read_back_and_nonsense_is_refused() {
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
            assert_eq!(text.parse::<Scope>().unwrap().to_string(), text);
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
    fn rights() {
        let worker = access(&["queue:a-*:receive", "buffer:read"]);
        assert!(worker.queue(&name("a-1"), Right::Receive));
        assert!(!worker.queue(&name("a-1"), Right::Submit) && !worker.queue(&name("a-1"), Right::Read));
        assert!(!worker.queue(&name("b"), Right::Receive));
        assert!(worker.read_buffers() && !worker.write_buffers() && !worker.admin());
        assert!(!worker.every_queue(Right::Receive));
        let operator = access(&["queue:*:admin"]);
        for right in Right::ALL {
            assert!(operator.queue(&name("x"), right) && operator.every_queue(right));
        }
        assert!(!operator.admin() && !operator.read_buffers());
        let admin = access(&["admin"]);
        assert!(
            admin.admin() && admin.every_queue(Right::Admin) && admin.write_buffers() && admin.read_buffers()
        );
        let nobody = access(&[]);
        assert!(!nobody.admin() && !nobody.queue(&name("x"), Right::Read));
    }

    #[test]
    fn what_a_route_needs_has_a_name_of_its_own() {
        for needs in Needs::ALL {
            assert_eq!(Needs::parse(&needs.to_string()), Some(needs));
        }
    }
}
