//! Fetches what this laptop lacks of the logs.

use crate::engine::log_stream::{self, LogOffsets, LogStreamError};
use crate::event::Outcome;
use crate::lifecycle::session::Session;
use crate::plan::facts::HostFacts;

/// Brings what this laptop lacks of the logs.
pub(crate) async fn fetch_logs(session: &Session, facts: &[Option<HostFacts>], offsets: LogOffsets) -> Outcome {
    let sites = session.host_contexts(facts, None);
    let mut fetches = tokio::task::JoinSet::new();
    for (link, site) in
        session.engine.connections().iter().cloned().zip(sites).filter(|(l, _)| facts.get(l.host_index()).is_some_and(Option::is_some))
    {
        let offsets = offsets.clone();
        let hosts = facts.len();
        fetches.spawn(async move { (link.host_index(), log_stream::fetch_logs(&link, &site, &offsets, hosts).await) });
    }
    let mut outcome = Outcome::Ok;
    while let Some(done) = fetches.join_next().await {
        if let Ok((host, Err(trouble))) = done {
            let what = match trouble {
                LogStreamError::Remote(error) => error.to_string(),
                LogStreamError::NotStored | LogStreamError::NotSynced(_) => "the logs could not be written on this laptop".to_owned(),
            };
            session.engine.emitter().send_notice(Some(host), what, true);
            outcome = Outcome::Unreachable;
        }
    }
    outcome
}
