//! Reports what `down` must not remove or could not check, so that it never claims that nothing is left.

use crate::inventory::Become;
use crate::lifecycle::session::Session;
use crate::lifecycle::teardown::report_leftover;
use crate::plan::fact_rules::docker_issue;
use crate::plan::facts::{DockerStatus, HostFacts};

/// Resources of the run that a teardown does not remove.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UnremovedItems {
    None,
    OtherUsers,
    /// Launched by this user, with files in another run directory.
    OwnElsewhere,
}

pub(crate) fn report_unremoved_items(session: &Session, facts: &[Option<HostFacts>]) -> UnremovedItems {
    let mut found = UnremovedItems::None;
    let names = session.host_names();
    for (host, facts) in facts.iter().enumerate().filter_map(|(host, facts)| facts.as_ref().map(|facts| (host, facts))) {
        let emitter = session.engine.emitter();
        if let Some((owner, dir)) = facts.orphans.foreign_dir.as_ref().and_then(|text| text.split_once(' ')) {
            emitter.send_notice(Some(host), format!("{dir} belongs to {owner}: it is left alone"), true);
            found = UnremovedItems::OtherUsers;
        }
        if let Some(text) = &facts.orphans.invalid_current_run {
            let text = format!("the note of the current run cannot be read ({text}): every run on the host is fetched and removed");
            emitter.send_notice(Some(host), text, true);
        }
        for container in &facts.orphans.containers {
            let dir = if container.run_dir.is_empty() { "an unknown directory" } else { &container.run_dir };
            if session.owns_container(container, facts) {
                // A container of a host in the session is removed by the teardown.
                if !names.contains(&container.host) {
                    found = UnremovedItems::OwnElsewhere;
                    report_leftover(
                        session,
                        host,
                        format!(
                            "container {} of the host name {}: add that name to the inventory, then run `orchestrate down`",
                            container.name_and_status(),
                            container.host
                        ),
                    );
                }
            } else if container.owner == session.local.identity.owner && container.run_dir != facts.run_dir {
                found = UnremovedItems::OwnElsewhere;
                let text = format!(
                    "container {}, with its files in {dir}: set run_dir to that directory, then run `orchestrate down`",
                    container.name_and_status()
                );
                report_leftover(session, host, text);
            } else {
                let text = format!(
                    "container {} belongs to {}, with its files in {dir}: it is left alone",
                    container.name_and_status(),
                    container.owner
                );
                emitter.send_notice(Some(host), text, true);
                found = if found == UnremovedItems::OwnElsewhere { found } else { UnremovedItems::OtherUsers };
            }
        }
    }
    found
}

/// Reports the hosts whose containers could not be listed; returns whether there are any.
pub(crate) fn report_unlistable_containers(session: &Session, facts: &[Option<HostFacts>]) -> bool {
    let mut found = false;
    for (index, (host, facts)) in session.inventory.hosts.iter().zip(facts).enumerate() {
        let Some(facts) = facts else { continue };
        let DockerStatus::Unusable(error) = &facts.docker else { continue };
        let issue = docker_issue(error, &host.name, &facts.user, host.ssh.r#become == Become::Sudo);
        let text = format!("could not list containers: {}; help: {}, then run `orchestrate down`", issue.message, issue.hint);
        report_leftover(session, index, text);
        found = true;
    }
    found
}
