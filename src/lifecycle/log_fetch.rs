//! Fetches missing log bytes from the hosts.

use crate::engine::log_stream::{self, LogOffsets, LogStreamError};
use crate::event::Outcome;
use crate::lifecycle::error::worse_outcome;
use crate::lifecycle::session::Session;
use crate::plan::facts::HostFacts;
use crate::plan::host_context::HostContext;

pub(crate) async fn fetch_logs(session: &Session, facts: &[Option<HostFacts>], offsets: LogOffsets) -> Outcome {
    let contexts = session.host_contexts(facts, None);
    let reached = contexts.into_iter().zip(facts).map(|(context, facts)| facts.is_some().then_some(context));
    fetch_logs_of(session, reached.collect(), offsets).await
}

/// Fetches from the hosts that have a context.
pub(crate) async fn fetch_logs_of(session: &Session, contexts: Vec<Option<HostContext>>, offsets: LogOffsets) -> Outcome {
    let hosts = contexts.len();
    let mut fetches = tokio::task::JoinSet::new();
    for (connection, context) in session.engine.connections().iter().cloned().zip(contexts) {
        let Some(context) = context else { continue };
        let offsets = offsets.clone();
        fetches.spawn(async move { (connection.host_index(), log_stream::fetch_logs(&connection, &context, &offsets, hosts).await) });
    }
    let mut outcome = Outcome::Ok;
    while let Some(done) = fetches.join_next().await {
        if let Ok((host, Err(error))) = done {
            let (message, end) = describe_failure(&error);
            session.engine.emitter().send_notice(Some(host), message, true);
            outcome = worse_outcome(end, outcome);
        }
    }
    outcome
}

/// That this laptop cannot store logs says nothing about the host.
fn describe_failure(error: &LogStreamError) -> (String, Outcome) {
    match error {
        LogStreamError::Remote(error) => (error.to_string(), Outcome::Unreachable),
        LogStreamError::NotStored => ("the logs could not be written on this laptop".to_owned(), Outcome::Failed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remote::RemoteError;

    #[test]
    fn full_disk_of_this_laptop_makes_no_host_unreachable() {
        let lost = RemoteError::Lost { what: "gone".to_owned(), hint: String::new(), retry: true };
        let outcomes = [LogStreamError::NotStored, LogStreamError::Remote(lost)].map(|error| describe_failure(&error).1);
        assert_eq!(outcomes, [Outcome::Failed, Outcome::Unreachable]);
    }
}
