//! What `up` finds, as `product.md` names the cases, from the facts of all hosts.

use crate::plan::facts::{Docker, HostFacts, Node};
use crate::plan::run::differences;
use crate::plan::words::{Exit, RunEnd};

/// The case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Situation {
    /// Nothing of this name is anywhere, or only kept containers without a run.
    Nothing,
    /// A whole gang runs; what differs from what was asked for (nothing: equal).
    Live {
        /// The run's id.
        run: String,
        /// `launch.nproc_per_node: 4 → 8`.
        differs: Vec<String>,
    },
    /// A run has ended on every host where it was.
    Ended {
        /// The run's id.
        run: String,
    },
    /// Some of a gang runs, some does not.
    Partial {
        /// Why it is no gang.
        why: String,
    },
}

/// One host's part in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// No run.
    None,
    /// Its directory is there and nothing was started.
    Written,
    /// The launcher runs.
    Running,
    /// It ended.
    Ended(Exit),
}

/// One host's part in its current run.
pub fn part(facts: &HostFacts) -> Part {
    if facts.current.is_none() {
        return Part::None;
    }
    match &facts.node {
        Node::None => Part::Written,
        Node::Ended { exit, .. } => Part::Ended(*exit),
        // Inside a container the host does not see the pid: the container's own state decides, and the keeper writes the status of a dead one.
        Node::Started { seen, .. } => {
            // Where docker does not answer, nothing says that it has ended.
            let in_container = || is_hidden(facts) || facts.container().is_some_and(|c| c.status == "running" || c.status == "paused");
            let runs = if facts.contained(true) { in_container() } else { *seen };
            if runs { Part::Running } else { Part::Ended(Exit::Killed) }
        }
    }
}

/// Whether docker does not say what is on the host.
pub fn is_hidden(facts: &HostFacts) -> bool {
    matches!(facts.docker, Docker::Unusable(_)) && facts.containers.is_empty()
}

/// How the current run of these hosts ended, or that it runs, and the second of its end on the hosts' clocks; `None`: nothing was started.
pub fn run_end(facts: &[&HostFacts]) -> Option<(RunEnd, f64)> {
    let facts: Vec<&HostFacts> = facts.iter().copied().filter(|f| f.current.is_some()).collect();
    let parts: Vec<Part> = facts.iter().map(|f| part(f)).collect();
    let file = facts.iter().find_map(|f| f.run_file());
    let ranks = || facts.iter().flat_map(|f| &f.ranks);
    // An elastic gang may lose hosts; a launcher that starts workers again may lose those.
    let least = file.map(|f| f.least).filter(|least| *least > 0).unwrap_or(parts.len());
    let fine = parts.iter().filter(|p| matches!(p, Part::Running | Part::Ended(Exit::Code(0)))).count();
    let restarts = file.is_some_and(|f| f.restarts);
    let failed = fine < least.min(parts.len()) || !restarts && ranks().any(|(_, _, exit)| exit.is_some_and(|(e, _)| !e.ok()));
    let at = |node: &Node| if let Node::Ended { at, .. } = node { *at } else { 0.0 };
    let last = facts.iter().map(|f| at(&f.node)).chain(ranks().filter_map(|(_, _, exit)| exit.map(|(_, at)| at))).fold(0.0, f64::max);
    match parts {
        _ if facts.iter().any(|f| f.stopped) => Some((RunEnd::Stopped, last)),
        parts if !parts.iter().any(|p| matches!(p, Part::Running | Part::Ended(_))) => None,
        _ if failed => Some((RunEnd::Failed, last)),
        parts if parts.contains(&Part::Running) => Some((RunEnd::Running, 0.0)),
        _ => Some((RunEnd::Ok, last)),
    }
}

/// A host where a run is current in a container and docker does not say whether it goes on, with what it said.
pub fn unseen(facts: &[HostFacts]) -> Option<(usize, &HostFacts, &str)> {
    facts.iter().enumerate().find_map(|(host, facts)| match &facts.docker {
        Docker::Unusable(says) if facts.current.is_some() && facts.contained(true) => Some((host, facts, says.as_str())),
        _ => None,
    })
}

/// Decides the case. `wanted`: container and launch text of each host as asked for now; empty where nothing is asked for.
pub fn situation(facts: &[HostFacts], names: &[String], wanted: &[(String, String)]) -> Situation {
    let parts: Vec<Part> = facts.iter().map(part).collect();
    let runs: Vec<&String> = facts.iter().filter_map(|f| f.current.as_ref()).collect();
    let Some(run) = runs.first().map(|r| (*r).clone()) else { return Situation::Nothing };
    if runs.iter().any(|r| **r != run) {
        return Situation::Partial { why: "the hosts have different runs".to_owned() };
    }
    let running = parts.iter().filter(|p| **p == Part::Running).count();
    if running == 0 {
        return if parts.iter().any(|p| matches!(p, Part::Ended(_))) {
            Situation::Ended { run }
        } else {
            Situation::Partial { why: "a launch was cut off before anything ran".to_owned() }
        };
    }
    // A launcher that ended well a moment before the others is still a whole gang.
    let fine = parts.iter().filter(|p| matches!(p, Part::Running | Part::Ended(Exit::Code(0)))).count();
    // An elastic one needs fewer than all.
    let least = facts.iter().find_map(HostFacts::run_file).map(|f| f.least).filter(|least| *least > 0).unwrap_or(parts.len());
    let whole = fine >= least.min(parts.len());
    let restarts = facts.iter().find_map(HostFacts::run_file).is_some_and(|f| f.restarts);
    let failed = !restarts && facts.iter().flat_map(|f| &f.ranks).any(|(_, _, exit)| exit.is_some_and(|(e, _)| !e.ok()));
    let file = facts.iter().find_map(HostFacts::run_file);
    let old = facts.iter().any(|f| f.old) && !wanted.is_empty();
    let differs = if old {
        vec!["an earlier version of orchestrate launched it".to_owned()]
    } else {
        file.map(|f| compare(f.hosts.iter().map(|h| &h.name), facts, names, wanted)).unwrap_or_default()
    };
    if differs.is_empty() && (!whole || failed) {
        let lacking: Vec<&str> = names.iter().zip(&parts).filter(|(_, p)| **p != Part::Running).map(|(n, _)| n.as_str()).collect();
        let why = if failed { "a rank has failed".to_owned() } else { format!("not running on {}", lacking.join(", ")) };
        return Situation::Partial { why };
    }
    Situation::Live { run, differs }
}

/// The facts as they will be when the run that is live has been stopped: what it holds is free then.
pub fn when_stopped(facts: &[HostFacts]) -> Vec<HostFacts> {
    let stopped = |facts: &HostFacts| {
        let mut facts = facts.clone();
        if part(&facts) == Part::Running {
            facts.busy.clear();
            facts.gpus_busy.clear();
        }
        facts
    };
    facts.iter().map(stopped).collect()
}

fn compare<'a>(then: impl Iterator<Item = &'a String>, facts: &[HostFacts], names: &[String], wanted: &[(String, String)]) -> Vec<String> {
    let mut found = Vec::new();
    let then: Vec<&String> = then.collect();
    if then != names.iter().collect::<Vec<_>>() && !wanted.is_empty() {
        let list = |names: &[&String]| names.iter().map(|n| n.as_str()).collect::<Vec<_>>().join(" ");
        found.push(format!("hosts: {} → {}", list(&then), list(&names.iter().collect::<Vec<_>>())));
        return found;
    }
    for (facts, (container, launch)) in facts.iter().zip(wanted) {
        let Some(file) = facts.run_file() else { continue };
        for line in differences(&file.container_text, container).into_iter().chain(differences(&file.launch_text, launch)) {
            if !found.contains(&line) {
                found.push(line);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::facts::Found;
    use crate::plan::run::{RunFile, RunHost};

    fn facts(node: Node, text: &str) -> HostFacts {
        let run_file = RunFile {
            run: "r1".to_owned(),
            contained: true,
            launch_text: text.to_owned(),
            hosts: ["a", "b"].map(|n| RunHost { name: n.to_owned(), ..RunHost::default() }).to_vec(),
            ..RunFile::default()
        };
        let container = Found {
            id: "1".to_owned(),
            status: "running".to_owned(),
            pid: 1,
            code: 0,
            oom: false,
            image: String::new(),
            ..Found::default()
        };
        HostFacts {
            current: Some("r1".to_owned()),
            node,
            containers: vec![container],
            run_file: Some(Ok(run_file)),
            ..HostFacts::default()
        }
    }

    fn case(nodes: [Node; 2], wanted: &str) -> Situation {
        let names = ["a".to_owned(), "b".to_owned()];
        let wanted = vec![(String::new(), wanted.to_owned()); 2];
        situation(&nodes.map(|n| facts(n, "nproc \"4\"")), &names, &wanted)
    }

    const RUNS: Node = Node::Started { pid: 5, seen: false };
    const OVER: Node = Node::Ended { exit: Exit::Code(0), at: 1.0 };
    const DIED: Node = Node::Ended { exit: Exit::Code(1), at: 1.0 };

    #[test]
    fn each_case_is_told_apart() {
        let run = "r1".to_owned();
        assert_eq!(case([RUNS, RUNS], "nproc \"4\""), Situation::Live { run: run.clone(), differs: vec![] });
        assert_eq!(case([RUNS, OVER], "nproc \"4\""), Situation::Live { run: run.clone(), differs: vec![] });
        assert_eq!(
            case([RUNS, RUNS], "nproc \"8\""),
            Situation::Live { run: run.clone(), differs: vec!["nproc: \"4\" → \"8\"".to_owned()] }
        );
        assert_eq!(case([OVER, DIED], "nproc \"4\""), Situation::Ended { run });
        assert!(matches!(case([RUNS, DIED], "nproc \"4\""), Situation::Partial { .. }));
        assert!(matches!(case([RUNS, Node::None], "nproc \"4\""), Situation::Partial { .. }));
        assert!(matches!(case([Node::None, Node::None], "nproc \"4\""), Situation::Partial { .. }));
        assert_eq!(situation(&[HostFacts::default()], &["a".to_owned()], &[]), Situation::Nothing);
        let silent = HostFacts { docker: Docker::Unusable("no".to_owned()), ..facts(RUNS, "") };
        assert_eq!(unseen(&[facts(RUNS, ""), silent.clone()]), Some((1, &silent, "no")));
        let hidden = HostFacts { containers: Vec::new(), ..silent.clone() };
        assert_eq!(part(&hidden), Part::Running, "what nobody says has not happened");
        assert_eq!(part(&HostFacts { docker: Docker::Usable("27".to_owned()), ..hidden }), Part::Ended(Exit::Killed));
        assert_eq!(unseen(&[HostFacts { current: None, ..silent }]), None, "nothing is known to run");
    }
}
