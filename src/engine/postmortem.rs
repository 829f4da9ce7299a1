//! Asks the hosts at which a run failed what they know of it, while its containers are still there.

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio::task::JoinSet;

use crate::engine::host_connection::HostConnection;
use crate::event::EventKind;
use crate::plan::host_context::HostContext;
use crate::plan::postmortem;

/// The most hosts that are asked: those that failed first.
const MAX_HOSTS: usize = 16;

/// The hosts that were asked, and those that have not answered yet.
#[derive(Debug, Default)]
pub(crate) struct PostmortemRequests {
    requested_hosts: BTreeSet<usize>,
    tasks: JoinSet<()>,
}

impl PostmortemRequests {
    /// Asks a host, once.
    pub(crate) fn request(&mut self, connection: &Arc<HostConnection>, context: &HostContext) {
        if self.requested_hosts.len() >= MAX_HOSTS || !self.requested_hosts.insert(connection.host_index()) {
            return;
        }
        let (link, command) = (connection.clone(), postmortem::postmortem_command(context));
        self.tasks.spawn(async move {
            // Not in the session that is kept free: the order to stop goes there at the same time.
            match tokio::time::timeout(postmortem::POSTMORTEM_TIMEOUT, link.exec(&command)).await {
                Ok(Ok(output)) => {
                    let lines = postmortem::parse_postmortem(&output.stdout_text());
                    if !lines.is_empty() {
                        link.emitter().send(EventKind::Postmortem { host: link.event_host_index(), lines });
                    }
                }
                // A missing file is reported elsewhere; here it means that nothing is known.
                Ok(Err(error)) => tracing::debug!(%error, host = link.host_index(), "it was not asked what it knows of the failure"),
                Err(_) => tracing::debug!(host = link.host_index(), "it did not say in time what it knows of the failure"),
            }
        });
    }

    /// Waits for the answers, each of which has its deadline.
    pub(crate) async fn wait_for_answers(&mut self) {
        while self.tasks.join_next().await.is_some() {}
    }
}
