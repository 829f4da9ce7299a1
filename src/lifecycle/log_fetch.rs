//! Fetches missing log bytes from the hosts.

use crate::engine::log_stream::{self, LogOffsets, LogStreamError};
use crate::event::Outcome;
use crate::lifecycle::session::Session;
use crate::plan::facts::HostFacts;

pub(crate) async fn fetch_logs(session: &Session, facts: &[Option<HostFacts>], offsets: LogOffsets) -> Outcome {
    let contexts = session.host_contexts(facts, None);
    let mut fetches = tokio::task::JoinSet::new();
    for (connection, context) in session
        .engine
        .connections()
        .iter()
        .cloned()
        .zip(contexts)
        .filter(|(connection, _)| facts.get(connection.host_index()).is_some_and(Option::is_some))
    {
        let offsets = offsets.clone();
        let hosts = facts.len();
        fetches.spawn(async move { (connection.host_index(), log_stream::fetch_logs(&connection, &context, &offsets, hosts).await) });
    }
    let mut outcome = Outcome::Ok;
    while let Some(done) = fetches.join_next().await {
        if let Ok((host, Err(error))) = done {
            let message = match error {
                LogStreamError::Remote(error) => error.to_string(),
                LogStreamError::NotStored | LogStreamError::NotSynced(_) => "the logs could not be written on this laptop".to_owned(),
            };
            session.engine.emitter().send_notice(Some(host), message, true);
            outcome = Outcome::Unreachable;
        }
    }
    outcome
}
