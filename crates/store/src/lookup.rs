//! The context of a decision about an item. All stores build it here.

use towline_domain::{Command, Context, Counts, Head, Queue, QueueId, QueueName};

/// Queues by id and by name.
pub trait QueueLookup {
    fn by_id(&self, id: QueueId) -> Option<(&Queue, Counts)>;
    fn by_name(&self, name: &QueueName) -> Option<&Queue>;
}

/// The context of a command about an existing item.
pub fn item_context<'a>(queues: &'a impl QueueLookup, head: &'a Head, command: &Command) -> Context<'a> {
    let (queue, counts) = queues.by_id(head.queue).unzip();
    let target = match command {
        Command::Guarded { then, .. } => return item_context(queues, head, then),
        Command::Lease(call) => call.adjust.queue.as_ref().and_then(|name| queues.by_name(name)),
        Command::Move { queue } => queues.by_name(queue),
        Command::Redrive => head
            .extras
            .as_ref()
            .and_then(|extras| extras.origin.as_ref())
            .and_then(|origin| queues.by_id(origin.queue_id))
            .map(|(queue, _)| queue),
        _ => None,
    };
    let dead_letters = queue
        .and_then(|queue: &Queue| queue.policy.dead_letter_queue.as_ref())
        .and_then(|name| queues.by_name(name));
    Context {
        queue,
        counts: counts.unwrap_or_default(),
        item: Some(head),
        target,
        dead_letters,
        ..Context::default()
    }
}
