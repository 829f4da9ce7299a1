//! What `down` sees on hosts and must not remove, or could not look at: it is named, so that "nothing is left" is never said for it.

use crate::inventory::Become;
use crate::lifecycle::session::Session;
use crate::lifecycle::teardown::report_leftover;
use crate::plan::fact_rules::docker_issue;
use crate::plan::facts::{DockerStatus, HostFacts};

/// What of this name is on the hosts beside what a teardown removes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UnremovedItems {
    None,
    /// What belongs to other people.
    OtherUsers,
    /// Something that this person launched, whose files are in another place.
    OwnElsewhere,
}

pub(crate) fn report_unremoved_items(session: &Session, facts: &[Option<HostFacts>]) -> UnremovedItems {
    let mut found = UnremovedItems::None;
    let names = session.host_names();
    for (host, facts) in facts.iter().enumerate().filter_map(|(host, facts)| facts.as_ref().map(|facts| (host, facts))) {
        let emit = session.engine.emitter();
        if let Some((who, place)) = facts.orphans.foreign_dir.as_ref().and_then(|text| text.split_once(' ')) {
            emit.send_notice(Some(host), format!("{place} belongs to {who}: it is left alone, and not looked into"), true);
            found = UnremovedItems::OtherUsers;
        }
        if let Some(text) = &facts.orphans.invalid_current_run {
            let text = format!("the note of the current run cannot be read ({text}): every run that is there is fetched and removed");
            emit.send_notice(Some(host), text, true);
        }
        for container in &facts.orphans.containers {
            let place = if container.run_dir.is_empty() { "a place that is not known" } else { &container.run_dir };
            if session.owns_container(container, facts) {
                // Under its own name it is looked at in any case.
                if !names.contains(&container.host) {
                    found = UnremovedItems::OwnElsewhere;
                    report_leftover(
                        session,
                        host,
                        format!(
                            "container {} of the host name {}: put that name into the inventory then `orchestrate down`",
                            container.name_and_status(),
                            container.host
                        ),
                    );
                }
            } else if container.owner == session.local.identity.owner && container.run_dir != facts.run_dir {
                found = UnremovedItems::OwnElsewhere;
                let text = format!(
                    "container {}, whose files are in {place}: set run_dir to it then `orchestrate down`",
                    container.name_and_status()
                );
                report_leftover(session, host, text);
            } else {
                let text = format!(
                    "container {} belongs to {}, with its files in {place}: it is left alone",
                    container.name_and_status(),
                    container.owner
                );
                emit.send_notice(Some(host), text, true);
                found = if found == UnremovedItems::OwnElsewhere { found } else { UnremovedItems::OtherUsers };
            }
        }
    }
    found
}

/// Names the hosts where docker could not be asked, so that a container may be there; whether there are any.
pub(crate) fn report_unlistable_containers(session: &Session, facts: &[Option<HostFacts>]) -> bool {
    let mut any = false;
    for (index, (host, facts)) in session.inventory.hosts.iter().zip(facts).enumerate() {
        let Some(facts) = facts else { continue };
        let DockerStatus::Unusable(says) = &facts.docker else { continue };
        let trouble = docker_issue(says, &host.name, &facts.user, host.ssh.r#become == Become::Sudo);
        let text = format!("containers could not be looked for: {}; help: {}, then `orchestrate down`", trouble.message, trouble.hint);
        report_leftover(session, index, text);
        any = true;
    }
    any
}
