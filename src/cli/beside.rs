//! What `down` sees on hosts and must not remove, or could not look at: it is named, so that "nothing is left" is never said for it.

use crate::cli::session::Session;
use crate::cli::undo::leftover;
use crate::inventory::Become;
use crate::plan::action::preflight::docker_trouble;
use crate::plan::facts::{Docker, HostFacts};

/// What of this name is on the hosts beside what a teardown removes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Others {
    /// Nothing.
    None,
    /// What belongs to other people.
    Theirs,
    /// Something that this person launched, whose files are in another place.
    Ours,
}

/// Names it.
pub(super) fn others(session: &Session, facts: &[Option<HostFacts>]) -> Others {
    let mut found = Others::None;
    let names = session.names();
    for (host, facts) in facts.iter().enumerate().filter_map(|(host, facts)| facts.as_ref().map(|facts| (host, facts))) {
        let emit = session.engine.emitter();
        if let Some((who, place)) = facts.elsewhere.foreign.as_ref().and_then(|text| text.split_once(' ')) {
            emit.notice(Some(host), format!("{place} belongs to {who}: it is left alone, and not looked into"), true);
            found = Others::Theirs;
        }
        if let Some(text) = &facts.elsewhere.bad_current {
            let text = format!("the note of the current run cannot be read ({text}): every run that is there is fetched and removed");
            emit.notice(Some(host), text, true);
        }
        for container in &facts.elsewhere.containers {
            let place = if container.run_dir.is_empty() { "a place that is not known" } else { &container.run_dir };
            if session.is_ours(container, facts) {
                // Under its own name it is looked at in any case.
                if !names.contains(&container.host) {
                    found = Others::Ours;
                    leftover(
                        session,
                        host,
                        format!(
                            "container {} of the host name {}: put that name into the inventory then `orchestrate down`",
                            container.shown(),
                            container.host
                        ),
                    );
                }
            } else if container.owner == session.identity.owner && container.run_dir != facts.run_dir {
                found = Others::Ours;
                let text =
                    format!("container {}, whose files are in {place}: set run_dir to it then `orchestrate down`", container.shown());
                leftover(session, host, text);
            } else {
                let text =
                    format!("container {} belongs to {}, with its files in {place}: it is left alone", container.shown(), container.owner);
                emit.notice(Some(host), text, true);
                found = if found == Others::Ours { found } else { Others::Theirs };
            }
        }
    }
    found
}

/// Names the hosts where docker could not be asked, so that a container may be there; whether there are any.
pub(super) fn unseen(session: &Session, facts: &[Option<HostFacts>]) -> bool {
    let mut any = false;
    for (index, (host, facts)) in session.inventory.hosts.iter().zip(facts).enumerate() {
        let Some(facts) = facts else { continue };
        let Docker::Unusable(says) = &facts.docker else { continue };
        let trouble = docker_trouble(says, &host.name, &facts.user, host.ssh.r#become == Become::Sudo);
        let text = format!("containers could not be looked for: {}; help: {}, then `orchestrate down`", trouble.what, trouble.hint);
        leftover(session, index, text);
        any = true;
    }
    any
}
