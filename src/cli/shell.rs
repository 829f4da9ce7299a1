//! `shell`: into the container of the run on one host, or onto the bare host, with the run's environment; of a rank also its variables.

use crate::cli::args::{ProgressMode, ShellArgs};
use crate::cli::exit::CliError;
use crate::cli::interactive::{self, InteractiveEnd};
use crate::cli::local_env::print_stderr;
use crate::cli::open_session::{LoadMode, load_inventory, open_session};
use crate::cli::output::OutputOptions;
use crate::cli::unreachable::print_unreachable;
use crate::event::Outcome;
use crate::lifecycle::session::Session;
use crate::plan::action::Issue;
use crate::plan::facts::HostFacts;
use crate::plan::host_context::HostContext;
use crate::plan::shell_command::ExecRequest;
use crate::remote::RemoteError;
use crate::report::style::Tone;

#[derive(Debug, PartialEq, Eq)]
enum ShellTarget {
    Host(String),
    Rank(u32),
}

/// Runs it.
///
/// # Errors
/// What must be said to the person; the status of what ran there.
pub(crate) async fn run(args: &ShellArgs) -> Result<Outcome, CliError> {
    let hosts = args.common_args();
    let (mut inventory, base) = load_inventory(&hosts, LoadMode::ConnectionOnly)?;
    let names: Vec<String> = inventory.hosts.iter().map(|host| host.name.clone()).collect();
    let wanted = parse_target(&args.target, &names).map_err(CliError::Usage)?;
    if let ShellTarget::Host(name) = &wanted {
        inventory.limit_hosts(name).map_err(|problem| CliError::Inventory(vec![problem]))?;
    }
    let session = open_session("shell", &hosts, (inventory, base), OutputOptions::progress_only(ProgressMode::Quiet))?;
    let answers = session.gather_facts(None).await;
    let found = match &wanted {
        ShellTarget::Host(_) => answers.first().and_then(|answer| answer.as_ref().ok()).map(|facts| (0, facts)),
        ShellTarget::Rank(rank) => find_rank_host(*rank, &session.host_names(), &answers),
    };
    let outcome = match found {
        Some((host, facts)) => {
            let rank = if let ShellTarget::Rank(rank) = wanted { Some(rank) } else { None };
            open_shell(&session, host, facts, rank, args).await
        }
        None => Ok(report_no_target(&session, &wanted, &answers)),
    };
    session.engine.close().await;
    outcome
}

/// A host's name, or the number of a rank: `3`, `r3`, `rank:3`.
fn parse_target(target: &str, names: &[String]) -> Result<ShellTarget, String> {
    if names.iter().any(|name| name == target) {
        return Ok(ShellTarget::Host(target.to_owned()));
    }
    let number = ["rank:", "rank-", "rank", "r"].iter().find_map(|head| target.strip_prefix(head)).unwrap_or(target);
    if let Ok(rank) = number.parse() {
        return Ok(ShellTarget::Rank(rank));
    }
    let known = names.iter().take(8).cloned().collect::<Vec<_>>().join(", ");
    let more = if names.len() > 8 { ", …" } else { "" };
    Err(format!("`{target}` is no host of this inventory and no number of a rank\n    help: the hosts are {known}{more}"))
}

/// The host of a rank: where it runs, where it ran last, or where it was planned.
fn find_rank_host<'a>(rank: u32, names: &[String], answers: &'a [Result<HostFacts, RemoteError>]) -> Option<(usize, &'a HostFacts)> {
    let known = || answers.iter().enumerate().filter_map(|(host, answer)| answer.as_ref().ok().map(|facts| (host, facts)));
    let seen = known().flat_map(|(host, facts)| {
        let own = facts.ranks.iter().filter(move |(number, ..)| *number == rank);
        own.map(move |(_, restart, exit)| ((exit.is_none(), *restart), host, facts))
    });
    if let Some((_, host, facts)) = seen.max_by_key(|(order, ..)| *order) {
        return Some((host, facts));
    }
    let file = known().find_map(|(_, facts)| facts.run_record())?;
    let place = file.ranks.iter().find(|info| info.rank == rank)?;
    let name = &file.hosts.get(place.host as usize)?.name;
    known().find(|(host, _)| names.get(*host) == Some(name))
}

/// Says why there is nothing to enter.
fn report_no_target(session: &Session, wanted: &ShellTarget, answers: &[Result<HostFacts, RemoteError>]) -> Outcome {
    let style = session.reporter.style();
    let names = session.host_names();
    let lost: Vec<(String, String, String)> = names
        .into_iter()
        .zip(answers)
        .filter_map(|(name, answer)| answer.as_ref().err().map(|error| (name, error.to_string(), error.hint().to_owned())))
        .collect();
    let unreached = !lost.is_empty();
    print_unreachable(session.reporter.sanitizer(), style, lost);
    if let ShellTarget::Rank(rank) = wanted {
        let run = answers.iter().flatten().find_map(HostFacts::run_record);
        let head = style.paint(Tone::Bad, "error");
        match run {
            Some(file) if rank < &file.world_size => print_stderr(&format!("{head}: the host of rank {rank} did not answer")),
            Some(file) => print_stderr(&format!("{head}: run {} has no rank {rank}: it has {}", file.run_id, file.world_size)),
            None => print_stderr(&format!("{head}: no run of {} is known to the hosts that answered", session.inventory.name)),
        }
        print_stderr(&format!("    help: `{}` shows what runs where; a host can be named instead", session.suggest_command("ps", "")));
    }
    if unreached { Outcome::Unreachable } else { Outcome::Refused }
}

async fn open_shell(session: &Session, host: usize, facts: &HostFacts, rank: Option<u32>, args: &ShellArgs) -> Result<Outcome, CliError> {
    let (Some(known), Some(link)) = (session.inventory.hosts.get(host), session.engine.connections().get(host)) else {
        return Ok(Outcome::Unreachable);
    };
    let terminal = interactive::local_pty_spec();
    let site = HostContext::from_inventory(&session.inventory, known, &facts.run_dir);
    let enter = ExecRequest::new(site, facts, rank, &args.command, terminal.as_ref().map(|terminal| terminal.term.as_str()));
    let style = session.reporter.style();
    let cleaner = session.reporter.sanitizer();
    let command = match enter.build_command() {
        Ok(command) => command,
        Err(Issue { message: what, hint }) => {
            print_stderr(&format!("{}: {}", style.paint(Tone::Bad, "error"), cleaner.sanitize_line(&what)));
            print_stderr(&format!("    help: {}", session.reporter.advice().complete_commands(&cleaner.sanitize_line(&hint))));
            return Ok(Outcome::Refused);
        }
    };
    let in_terminal = terminal.is_some();
    if in_terminal && args.command.is_empty() {
        print_stderr(
            &style.paint(
                Tone::Dim,
                &format!("{}; `exit` leaves, `~.` where nothing answers", cleaner.sanitize_line(&enter.describe_target())),
            ),
        );
    }
    let opened = async { link.get_or_connect().await?.open_interactive(&command, terminal).await };
    let left = match opened.await {
        Ok(talk) => interactive::run(talk, in_terminal).await.map_err(anyhow::Error::from)?,
        Err(error) => InteractiveEnd::ConnectionLost(error),
    };
    match left {
        InteractiveEnd::Exited(code) => Err(CliError::RemoteExit(u8::try_from(code).unwrap_or(255))),
        InteractiveEnd::OutputClosed => Ok(Outcome::Ok),
        InteractiveEnd::Escaped => {
            print_stderr(&format!("{}: left; what ran there was told that it hung up", cleaner.sanitize_line(&known.name)));
            Ok(Outcome::Signal(1))
        }
        InteractiveEnd::Signal(number) => Ok(Outcome::Signal(number)),
        InteractiveEnd::ConnectionLost(error) => {
            print_unreachable(cleaner, style, vec![(known.name.clone(), error.to_string(), error.hint().to_owned())]);
            Ok(if matches!(error, RemoteError::Refused { .. }) { Outcome::Refused } else { Outcome::Unreachable })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_name_wins_over_rank() {
        let names = ["gpu01".to_owned(), "7".to_owned(), "r2".to_owned()];
        let at = |place: &str| parse_target(place, &names);
        assert_eq!(at("7"), Ok(ShellTarget::Host("7".to_owned())));
        assert_eq!(at("r2"), Ok(ShellTarget::Host("r2".to_owned())));
        for place in ["3", "r3", "rank3", "rank-3", "rank:3"] {
            assert_eq!(at(place), Ok(ShellTarget::Rank(3)), "{place}");
        }
        assert!(at("gpu1").expect_err("no host").contains("gpu01, 7, r2"));
    }
}
