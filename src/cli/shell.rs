//! `shell`: into the container of the run on one host, or onto the bare host, with the run's environment; of a rank also its variables.

use crate::cli::args::{Progress, ShellArgs};
use crate::cli::desk::Faces;
use crate::cli::exec::tell_unreached;
use crate::cli::exit::Failure;
use crate::cli::laptop::{known_secrets, say};
use crate::cli::session::{Need, Session, inventory};
use crate::cli::talk::{self, Left};
use crate::event::Outcome;
use crate::plan::action::Trouble;
use crate::plan::build::site;
use crate::plan::enter::Enter;
use crate::plan::facts::HostFacts;
use crate::remote::RemoteError;
use crate::report::loglines::Logs;
use crate::report::words::Role;

/// Where to.
#[derive(Debug, PartialEq, Eq)]
enum Wanted {
    Host(String),
    Rank(u32),
}

/// Runs it.
///
/// # Errors
/// What must be said to the person; the status of what ran there.
pub async fn run(args: &ShellArgs) -> Result<Outcome, Failure> {
    let hosts = args.hosts();
    let (mut inventory, base) = inventory(&hosts, Need::Connection)?;
    let names: Vec<String> = inventory.hosts.iter().map(|host| host.name.clone()).collect();
    let wanted = wanted(&args.place, &names).map_err(Failure::Usage)?;
    if let Wanted::Host(name) = &wanted {
        inventory.limit(name).map_err(|problem| Failure::Inventory(vec![problem]))?;
    }
    let secrets = known_secrets(&inventory);
    let faces = Faces { progress: Progress::Quiet, logs: Logs::None, data: false };
    let session = Session::open("shell", &hosts, inventory, base, faces, &secrets)?;
    let answers = session.gather(None).await;
    let found = match &wanted {
        Wanted::Host(_) => answers.first().and_then(|answer| answer.as_ref().ok()).map(|facts| (0, facts)),
        Wanted::Rank(rank) => home_of(*rank, &session.names(), &answers),
    };
    let outcome = match found {
        Some((host, facts)) => {
            let rank = if let Wanted::Rank(rank) = wanted { Some(rank) } else { None };
            enter(&session, host, facts, rank, args).await
        }
        None => Ok(nowhere(&session, &wanted, &answers)),
    };
    session.engine.close().await;
    outcome
}

/// A host's name, or the number of a rank: `3`, `r3`, `rank:3`.
fn wanted(place: &str, names: &[String]) -> Result<Wanted, String> {
    if names.iter().any(|name| name == place) {
        return Ok(Wanted::Host(place.to_owned()));
    }
    let number = ["rank:", "rank-", "rank", "r"].iter().find_map(|head| place.strip_prefix(head)).unwrap_or(place);
    if let Ok(rank) = number.parse() {
        return Ok(Wanted::Rank(rank));
    }
    let known = names.iter().take(8).cloned().collect::<Vec<_>>().join(", ");
    let more = if names.len() > 8 { ", …" } else { "" };
    Err(format!("`{place}` is no host of this inventory and no number of a rank\n    help: the hosts are {known}{more}"))
}

/// The host of a rank: where it runs, where it ran last, or where it was planned.
fn home_of<'a>(rank: u32, names: &[String], answers: &'a [Result<HostFacts, RemoteError>]) -> Option<(usize, &'a HostFacts)> {
    let known = || answers.iter().enumerate().filter_map(|(host, answer)| answer.as_ref().ok().map(|facts| (host, facts)));
    let seen = known().flat_map(|(host, facts)| {
        let own = facts.ranks.iter().filter(move |(number, ..)| *number == rank);
        own.map(move |(_, restart, exit)| ((exit.is_none(), *restart), host, facts))
    });
    if let Some((_, host, facts)) = seen.max_by_key(|(order, ..)| *order) {
        return Some((host, facts));
    }
    let file = known().find_map(|(_, facts)| facts.run_file())?;
    let place = file.ranks.iter().find(|info| info.rank == rank)?;
    let name = &file.hosts.get(place.host as usize)?.name;
    known().find(|(host, _)| names.get(*host) == Some(name))
}

/// Says why there is nothing to enter.
fn nowhere(session: &Session, wanted: &Wanted, answers: &[Result<HostFacts, RemoteError>]) -> Outcome {
    let style = session.desk.style();
    let names = session.names();
    let lost: Vec<(String, String, String)> = names
        .into_iter()
        .zip(answers)
        .filter_map(|(name, answer)| answer.as_ref().err().map(|error| (name, error.to_string(), error.hint().to_owned())))
        .collect();
    let unreached = !lost.is_empty();
    tell_unreached(session.desk.cleaner(), style, lost);
    if let Wanted::Rank(rank) = wanted {
        let run = answers.iter().flatten().find_map(HostFacts::run_file);
        let head = style.paint(Role::Bad, "error");
        match run {
            Some(file) if rank < &file.world_size => say(&format!("{head}: the host of rank {rank} did not answer")),
            Some(file) => say(&format!("{head}: run {} has no rank {rank}: it has {}", file.run, file.world_size)),
            None => say(&format!("{head}: no run of {} is known to the hosts that answered", session.inventory.name)),
        }
        say(&format!("    help: `{}` shows what runs where; a host can be named instead", session.advise("ps", "")));
    }
    if unreached { Outcome::Unreachable } else { Outcome::Refused }
}

async fn enter(session: &Session, host: usize, facts: &HostFacts, rank: Option<u32>, args: &ShellArgs) -> Result<Outcome, Failure> {
    let (Some(known), Some(link)) = (session.inventory.hosts.get(host), session.engine.links().get(host)) else {
        return Ok(Outcome::Unreachable);
    };
    let terminal = talk::terminal();
    let site = site(&session.inventory, known, &facts.run_dir, "", None);
    let enter = Enter::new(site, facts, rank, &args.words, terminal.as_ref().map(|terminal| terminal.term.as_str()));
    let style = session.desk.style();
    let cleaner = session.desk.cleaner();
    let command = match enter.command() {
        Ok(command) => command,
        Err(Trouble { what, hint }) => {
            say(&format!("{}: {}", style.paint(Role::Bad, "error"), cleaner.line(&what)));
            say(&format!("    help: {}", session.desk.advice().complete(&cleaner.line(&hint))));
            return Ok(Outcome::Refused);
        }
    };
    let in_terminal = terminal.is_some();
    if in_terminal && args.words.is_empty() {
        say(&style.paint(Role::Dim, &format!("{}; `exit` leaves, `~.` where nothing answers", cleaner.line(&enter.place()))));
    }
    let opened = async { link.get().await?.talk(&command, terminal).await };
    let left = match opened.await {
        Ok(talk) => talk::carry(talk, in_terminal).await.map_err(anyhow::Error::from)?,
        Err(error) => Left::Lost(error),
    };
    match left {
        Left::Ended(code) => Err(Failure::Status(u8::try_from(code).unwrap_or(255))),
        Left::Unread => Ok(Outcome::Ok),
        Left::Escaped => {
            say(&format!("{}: left; what ran there was told that it hung up", cleaner.line(&known.name)));
            Ok(Outcome::Signal(1))
        }
        Left::Signal(number) => Ok(Outcome::Signal(number)),
        Left::Lost(error) => {
            tell_unreached(cleaner, style, vec![(known.name.clone(), error.to_string(), error.hint().to_owned())]);
            Ok(if matches!(error, RemoteError::Refused { .. }) { Outcome::Refused } else { Outcome::Unreachable })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_comes_before_a_number() {
        let names = ["gpu01".to_owned(), "7".to_owned(), "r2".to_owned()];
        let at = |place: &str| wanted(place, &names);
        assert_eq!(at("7"), Ok(Wanted::Host("7".to_owned())));
        assert_eq!(at("r2"), Ok(Wanted::Host("r2".to_owned())));
        for place in ["3", "r3", "rank3", "rank-3", "rank:3"] {
            assert_eq!(at(place), Ok(Wanted::Rank(3)), "{place}");
        }
        assert!(at("gpu1").expect_err("no host").contains("gpu01, 7, r2"));
    }
}
