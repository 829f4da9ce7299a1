//! Collects the stacks of every rank from the hosts.

use crate::event::Outcome;
use crate::lifecycle::error::worse_outcome;
use crate::lifecycle::session::{Session, UnreachableHosts, split_answers};
use crate::plan::facts::HostFacts;
use crate::plan::protocol::stacks::{self, RankStack};

pub(crate) struct CollectedStacks {
    /// Each with the index of its host.
    pub(crate) stacks: Vec<(usize, RankStack)>,
    /// How many hosts have ranks.
    pub(crate) queried_hosts: usize,
    /// Also those that gave no stacks.
    pub(crate) unreachable: UnreachableHosts,
    pub(crate) outcome: Outcome,
}

pub(crate) async fn collect_stacks(session: &Session) -> CollectedStacks {
    let names = session.host_names();
    let (facts, mut unreachable) = split_answers(names.clone(), session.gather_facts(None).await);
    let mut outcome = if unreachable.is_empty() { Outcome::Ok } else { Outcome::Unreachable };
    let has_ranks = |facts: &Option<HostFacts>| facts.as_ref().is_some_and(|facts| facts.current_run.is_some() && !facts.ranks.is_empty());
    let contexts = session.host_contexts(&facts, None);
    let hosts = contexts.iter().enumerate().filter(|(host, _)| facts.get(*host).is_some_and(has_ranks));
    let commands: Vec<_> = hosts.map(|(host, context)| (host, stacks::stacks_command(context))).collect();
    let (queried_hosts, mut found) = (commands.len(), Vec::new());
    for (host, answer) in session.engine.fan_out(commands).await {
        let parsed = match answer {
            Ok(output) => stacks::parse_stacks(&output).map_err(|problem| {
                let hint = format!("`{}` shows whether its ranks are running", session.suggest_command("ps", ""));
                (format!("could not read the stacks of its ranks: {problem}"), hint, Outcome::Failed)
            }),
            Err(error) => Err((error.to_string(), error.hint().to_owned(), Outcome::Unreachable)),
        };
        match parsed {
            Ok(stacks) => found.extend(stacks.into_iter().map(|stack| (host, stack))),
            Err((error, hint, end)) => {
                outcome = worse_outcome(end, outcome);
                unreachable.push((names.get(host).cloned().unwrap_or_default(), error, hint));
            }
        }
    }
    CollectedStacks { stacks: found, queried_hosts, unreachable, outcome }
}
