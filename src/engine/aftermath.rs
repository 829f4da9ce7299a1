//! Asks the hosts at which a run failed what they know of it, while its containers are still there.

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio::task::JoinSet;

use crate::engine::link::Link;
use crate::event::EventKind;
use crate::plan::aftermath;
use crate::plan::site::Site;

/// The most hosts that are asked: those who failed first.
const HOSTS: usize = 16;

/// Who was asked, and who has not answered yet.
#[derive(Debug, Default)]
pub struct Aftermath {
    asked: BTreeSet<usize>,
    tasks: JoinSet<()>,
}

impl Aftermath {
    /// Asks a host, once.
    pub fn ask(&mut self, link: &Arc<Link>, site: &Site) {
        if self.asked.len() >= HOSTS || !self.asked.insert(link.host()) {
            return;
        }
        let (link, command) = (link.clone(), aftermath::command(site));
        self.tasks.spawn(async move {
            // Not in the session that is kept free: the order to stop goes there at the same time.
            match tokio::time::timeout(aftermath::PATIENCE, link.exec(&command)).await {
                Ok(Ok(output)) => {
                    let lines = aftermath::read(&output.text());
                    if !lines.is_empty() {
                        link.emitter().send(EventKind::Aftermath { host: link.id(), lines });
                    }
                }
                // Its absence is told as such elsewhere; nothing is known of it here.
                Ok(Err(error)) => tracing::debug!(%error, host = link.host(), "it was not asked what it knows of the failure"),
                Err(_) => tracing::debug!(host = link.host(), "it did not say in time what it knows of the failure"),
            }
        });
    }

    /// Waits for the answers, each of which has its deadline.
    pub async fn answered(&mut self) {
        while self.tasks.join_next().await.is_some() {}
    }
}
