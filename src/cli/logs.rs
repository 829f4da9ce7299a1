#![expect(clippy::disallowed_methods, reason = "prints from the laptop's copies")]
//! `logs`: what the ranks wrote, read from the hosts; this laptop's copies spare what is here already.

use std::collections::BTreeSet;
use std::io::BufRead;

use crate::cli::args::LogsArgs;
use crate::cli::attach::Manner;
use crate::cli::desk::Faces;
use crate::cli::exit::Failure;
use crate::cli::laptop::{known_secrets, print};
use crate::cli::session::{Need, Session, answered, inventory, record};
use crate::cli::signals::{Part, Signals};
use crate::engine::follow::Finish;
use crate::engine::watch;
use crate::event::{LogFile, Outcome};
use crate::plan::facts::HostFacts;
use crate::report::loglines::Logs;
use crate::report::logs::LogStore;
use crate::report::runs::open_logs;

/// Runs it.
///
/// # Errors
/// What must be said to the person.
pub async fn run(args: &LogsArgs) -> Result<Outcome, Failure> {
    let (inventory, base) = inventory(&args.host, Need::Connection)?;
    for host in &args.hosts {
        if inventory.hosts.iter().all(|h| h.name != *host) {
            return Err(Failure::Usage(format!("--host {host}: no such host in the inventory")));
        }
    }
    // From now on, so that a Ctrl-C meanwhile ends the following before it begins.
    let signals = if args.follow { Some(Signals::listen(Part::Onlooker).map_err(anyhow::Error::from)?) } else { None };
    let secrets = known_secrets(&inventory);
    let faces = Faces { progress: crate::cli::args::Progress::Plain, logs: Logs::None, data: false };
    let mut session = Session::open("logs", &args.host, inventory.clone(), base.clone(), faces, &secrets)?;
    // The names of the hosts come first: what goes wrong meanwhile is reported under them.
    session.begin("", None);
    let (facts, outcome) = answered(&session, session.gather(None).await);
    let Some(run) = facts.iter().flatten().find_map(|f| f.current.clone()) else {
        let why = format!("no run of {} is on any host", session.inventory.name);
        return Ok(session.finish(if outcome == Outcome::Ok { Outcome::Failed } else { outcome }, &why, false).await.0);
    };
    let offsets = session.keep(&run, record(facts.iter().flatten(), &run)).await?;
    session.begin(&run, None);
    let sites = session.sites(&facts, None);
    let mut fetches = tokio::task::JoinSet::new();
    for (link, site) in session.engine.links().iter().cloned().zip(sites).filter(|(l, _)| facts.get(l.host()).is_some_and(Option::is_some))
    {
        let offsets = offsets.clone();
        let hosts = facts.len();
        fetches.spawn(async move { (link.host(), watch::fetch(&link, &site, &offsets, hosts).await) });
    }
    let mut outcome = outcome;
    while let Some(done) = fetches.join_next().await {
        if let Ok((host, Err(trouble))) = done {
            let what = match trouble {
                watch::Trouble::Remote(error) => error.to_string(),
                watch::Trouble::NotStored | watch::Trouble::NotSynced(_) => "the logs could not be written on this laptop".to_owned(),
            };
            session.engine.emitter().notice(Some(host), what, true);
            outcome = Outcome::Unreachable;
        }
    }
    show(&session, args, &facts)?;
    let (outcome, _) = session.finish(outcome, "", false).await;
    let Some(signals) = signals.filter(|_| outcome == Outcome::Ok) else { return Ok(outcome) };
    // What is there was shown from this laptop's copies: a second session shows what comes after it.
    let ranks: BTreeSet<u32> = args.rank.iter().copied().collect();
    let logs = if ranks.is_empty() { Logs::All } else { Logs::Ranks(ranks) };
    let faces = Faces { progress: crate::cli::args::Progress::Plain, logs, data: true };
    follow(Session::open("logs", &args.host, inventory, base, faces, &secrets)?, signals, facts, &run).await
}

async fn follow(mut session: Session, mut signals: Signals, facts: Vec<Option<HostFacts>>, run: &str) -> Result<Outcome, Failure> {
    let facts: Vec<HostFacts> = facts.into_iter().map(Option::unwrap_or_default).collect();
    let (finish, _) = crate::cli::attach::follow(&mut session, &facts, run, &mut signals, Manner::Looking).await?;
    let outcome = match (finish, signals.came()) {
        (Finish::Detached, Some(number)) => Outcome::Signal(number),
        _ => Outcome::Ok,
    };
    Ok(session.finish(outcome, "", false).await.0)
}

fn show(session: &Session, args: &LogsArgs, facts: &[Option<HostFacts>]) -> Result<(), Failure> {
    let Some(dir) = &session.dir else { return Ok(()) };
    let store = open_logs(dir.path()).map_err(|e| Failure::Usage(e.to_string()))?;
    for (name, facts) in session.names().iter().zip(facts) {
        let Some(facts) = facts else { continue };
        if !args.hosts.is_empty() && !args.hosts.contains(name) {
            continue;
        }
        let mut files: Vec<LogFile> = facts.logs.iter().map(|(file, _)| *file).collect();
        files.sort();
        for file in files {
            let prefix = match file {
                LogFile::Node if args.rank.is_empty() => format!("[node {name}] "),
                LogFile::Rank { rank, .. } if args.rank.is_empty() || args.rank.contains(&rank) => format!("[rank {rank} {name}] "),
                LogFile::Node | LogFile::Rank { .. } => continue,
            };
            show_file(session, &store, name, file, &prefix, args.tail)?;
        }
    }
    Ok(())
}

fn show_file(session: &Session, store: &LogStore, host: &str, file: LogFile, prefix: &str, tail: Option<usize>) -> Result<(), Failure> {
    let cleaner = session.desk.cleaner();
    let mut one = |line: &[u8]| print(&format!("{prefix}{}\n", cleaner.line(&String::from_utf8_lossy(line))));
    if let Some(lines) = tail {
        let bytes = store.tail(host, file, lines).map_err(|e| Failure::Usage(e.to_string()))?;
        bytes.strip_suffix(b"\n").unwrap_or(&bytes).split(|b| *b == b'\n').filter(|_| !bytes.is_empty()).for_each(&mut one);
        return Ok(());
    }
    let Some(Ok(open)) = store.path(host, file).map(std::fs::File::open) else { return Ok(()) };
    let mut reader = std::io::BufReader::new(open);
    let mut line = Vec::new();
    loop {
        line.clear();
        // A line without an end is cut at 1 MiB: memory is bounded.
        let read = std::io::Read::take(&mut reader, 1 << 20).read_until(b'\n', &mut line).map_err(anyhow::Error::from)?;
        if read == 0 {
            return Ok(());
        }
        one(&line);
    }
}
