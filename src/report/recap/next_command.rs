//! The command that the recap suggests.

use crate::diagnose::advice_formatter::AdviceFormatter;
use crate::event::{LogFile, Outcome, Phase, RunOutcome};
use crate::model::ADDRESS_NOT_FOUND_HINT;
use crate::state::{RunState, StepState};
use crate::text::shell_quote::quote;
use crate::text::translation::Lang;

/// The command to run next; `cause`: the ranks whose lines say why the run failed.
pub(super) fn suggest_next_command(state: &RunState, advice: &AdviceFormatter, cause: &[u32]) -> Option<String> {
    let command = |verb: &str, args: &str| advice.format_run_command(verb, args);
    match &state.outcome.as_ref()?.0 {
        Outcome::Signal(_) if is_still_running(state) => Some(command("attach", "")),
        Outcome::Ok | Outcome::Refused | Outcome::Signal(_) | Outcome::Stopped => None,
        Outcome::Detached => Some(command("attach", "")),
        Outcome::Failed => {
            let first = state.culprit_ranks();
            let rank = cause.iter().find(|rank| first.contains(rank)).or(cause.first()).or(first.first()).copied();
            let rank = rank.or_else(|| state.failed_ranks().first().map(|rank| rank.rank));
            let of_rank = rank.map(|rank| format!("--rank {rank}"));
            of_rank.or_else(|| step_logs(state)).map(|selection| command("logs", &selection))
        }
        Outcome::Leftovers if !state.has_only_unverified_leftovers() => Some(command("down", "")),
        // What reaches the host by hand names address, port and user, and says more; it would not find a missing address either.
        Outcome::Leftovers | Outcome::Unreachable => {
            let lost = state.unreachable_hosts().next().map(|(_, host)| host);
            lost.filter(|host| host.connection_hint != ADDRESS_NOT_FOUND_HINT).map(|host| format!("ssh {}", advice.ssh_args(&host.name)))
        }
        Outcome::Locked => Some(command("ps", "")),
    }
}

/// Selects the logs of the first task that failed and has one, or of the master, whose launch the workers waited for in vain.
fn step_logs(state: &RunState) -> Option<String> {
    let host = state.failed_steps().find_map(|step| match step.info.phase {
        Phase::Task(number) => state.recent_lines(step.info.host, LogFile::Task { number }).map(|_| step.info.host),
        Phase::Master | Phase::Workers => Some(0),
        _ => None,
    })?;
    let name = &state.hosts.get(host as usize)?.name;
    Some(format!("--host {}", quote(name)))
}

/// Whether only tasks failed.
fn has_only_failed_tasks(state: &RunState) -> bool {
    let is_task = |step: &StepState| matches!(step.info.phase, Phase::Task(_));
    let mut failed = state.failed_steps().peekable();
    failed.peek().is_some() && failed.all(is_task)
}

/// Labels and commands for what can be done after the next command, or instead of it.
pub(super) fn further_commands(state: &RunState, advice: &AdviceFormatter, lang: Lang) -> Vec<(&'static str, String)> {
    let mut commands = Vec::new();
    let launches = matches!(state.info.command.as_str(), "up" | "prepare");
    let retry = |verb: &str| (lang.tr("retry"), advice.format_repetition(verb));
    match &state.outcome {
        Some((Outcome::Leftovers, _)) if state.has_only_unverified_leftovers() => commands.push(retry("down")),
        // The steps that failed are named with their remedies.
        Some((Outcome::Refused, _)) if state.info.command == "up" && state.failed_steps().next().is_some() => commands.push(retry("up")),
        Some((Outcome::Failed, _)) if launches && has_only_failed_tasks(state) => commands.push(retry(&state.info.command)),
        Some((Outcome::Unreachable, _)) if launches && state.run_end().is_none() => commands.push(retry(&state.info.command)),
        _ => {}
    }
    if let Some(command) = command_without_lost_hosts(state, advice) {
        // Not as a comment behind the command: zsh would take it for arguments.
        commands.extend([(lang.tr("skip it"), command), ("", lang.tr("(with fewer ranks)").to_owned())]);
    }
    if is_still_running(state) {
        // A limited `attach` may follow a part of a run; a limited `up` has launched the whole.
        let is_part = state.info.command == "attach";
        let down = if is_part { advice.format_command("down", "") } else { advice.format_run_command("down", "") };
        commands.push((lang.tr("end it"), down));
    }
    commands
}

/// More lost hosts are a matter of the network.
const MAX_EXCLUDED_HOSTS: usize = 8;

/// What launches on the hosts that answered, if nothing was launched because others did not.
fn command_without_lost_hosts(state: &RunState, advice: &AdviceFormatter) -> Option<String> {
    let lost: Vec<String> = state.unreachable_hosts().map(|(_, host)| format!("!{}", host.name)).collect();
    let may_skip = state.info.command == "up" && matches!(state.outcome, Some((Outcome::Unreachable, _))) && state.run_end().is_none();
    let are_few = (1..=MAX_EXCLUDED_HOSTS).contains(&lost.len()) && lost.len() < state.hosts.len();
    (may_skip && are_few && !advice.is_limited()).then(|| advice.format_command("up", &format!("--limit {}", quote(&lost.join(",")))))
}

/// Whether this command ended while the run continues.
fn is_still_running(state: &RunState) -> bool {
    matches!(state.outcome, Some((Outcome::Detached | Outcome::Signal(_), _))) && state.run_end() == Some(RunOutcome::Running)
}
