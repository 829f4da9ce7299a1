#![expect(clippy::disallowed_methods, reason = "prints from the laptop's copies")]
//! `logs`: what the ranks wrote, read from the hosts; this laptop's copies spare what is here already, and are shown where the hosts have no run
//! any more.

use std::io::BufRead;

use crate::cli::args::LogsArgs;
use crate::cli::attach::Manner;
use crate::cli::desk::Faces;
use crate::cli::exit::{Failure, worse};
use crate::cli::laptop::{Laptop, known_secrets, print, say};
use crate::cli::session::{Need, Session, answered, inventory, record};
use crate::cli::signals::{Part, Signals};
use crate::engine::follow::Finish;
use crate::engine::watch;
use crate::event::{LogFile, Outcome, RunEnd};
use crate::plan::facts::HostFacts;
use crate::report::loglines::Logs;
use crate::report::logs::{LogError, LogStore};
use crate::report::runs::{RunDir, RunSummary, list, open_logs};
use crate::report::sanitize::Cleaner;
use crate::report::words;

/// Runs it.
///
/// # Errors
/// What must be said to the person.
pub async fn run(args: &LogsArgs) -> Result<Outcome, Failure> {
    let (inventory, base) = inventory(&args.host, Need::Connection)?;
    for host in args.hosts.iter().filter(|_| args.run.is_none()) {
        if inventory.hosts.iter().all(|h| h.name != *host) {
            return Err(Failure::Usage(format!("--host {host}: no such host in the inventory")));
        }
    }
    let secrets = known_secrets(&inventory);
    let past = Past::new(&inventory.name, &secrets)?;
    let wanted = args.run.as_deref().map(|id| past.find(id)).transpose()?;
    if let Some(run) = wanted.as_ref().filter(|run| !matches!(run.run_end, None | Some(RunEnd::Running))) {
        return past.show(run, args);
    }
    // From now on, so that a Ctrl-C meanwhile ends the following before it begins.
    let signals = if args.follow { Some(Signals::listen(Part::Onlooker).map_err(anyhow::Error::from)?) } else { None };
    let faces = Faces { progress: crate::cli::args::Progress::Plain, logs: Logs::None, data: false };
    let mut session = Session::open("logs", &args.host, inventory.clone(), base.clone(), faces, &secrets)?;
    // The names of the hosts come first: what goes wrong meanwhile is reported under them.
    session.begin("", None);
    let (facts, outcome) = answered(&session, session.gather(None).await);
    let current = facts.iter().flatten().find_map(|f| f.current.clone());
    let Some(run) = current.filter(|run| wanted.as_ref().is_none_or(|wanted| wanted.run == *run)) else {
        let (unreached, _) = session.finish(outcome, "", false).await;
        return past.instead(wanted, args, unreached);
    };
    let offsets = session.keep(&run, record(facts.iter().flatten(), &run)).await?;
    session.begin(&run, None);
    session.tell_run_end(&facts).await;
    let outcome = worse(fetch(&session, &facts, offsets).await, outcome);
    if let Some(dir) = &session.dir {
        let size = record(facts.iter().flatten(), &run).map(|file| file.world_size);
        show(dir, args, session.desk.cleaner(), size)?;
    }
    let (outcome, _) = session.finish(outcome, "", false).await;
    let Some(signals) = signals.filter(|_| outcome == Outcome::Ok) else { return Ok(outcome) };
    // What is there was shown from this laptop's copies: a second session shows what comes after it.
    let ranks = args.ranks();
    let logs = if ranks.is_empty() { Logs::All } else { Logs::Ranks(ranks) };
    let faces = Faces { progress: crate::cli::args::Progress::Plain, logs, data: true };
    follow(Session::open("logs", &args.host, inventory, base, faces, &secrets)?, signals, facts, &run).await
}

/// Brings what this laptop lacks of the logs.
async fn fetch(session: &Session, facts: &[Option<HostFacts>], offsets: watch::Offsets) -> Outcome {
    let sites = session.sites(facts, None);
    let mut fetches = tokio::task::JoinSet::new();
    for (link, site) in session.engine.links().iter().cloned().zip(sites).filter(|(l, _)| facts.get(l.host()).is_some_and(Option::is_some))
    {
        let offsets = offsets.clone();
        let hosts = facts.len();
        fetches.spawn(async move { (link.host(), watch::fetch(&link, &site, &offsets, hosts).await) });
    }
    let mut outcome = Outcome::Ok;
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
    outcome
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

/// The runs of an inventory that this laptop knows.
struct Past {
    laptop: Laptop,
    name: String,
    runs: Vec<RunSummary>,
    cleaner: Cleaner,
}

impl Past {
    fn new(name: &str, secrets: &[String]) -> Result<Past, Failure> {
        let laptop = Laptop::read()?;
        let runs = list(&laptop.state).map_err(|e| Failure::Usage(format!("{}: {e}", laptop.state.display())))?;
        let runs = runs.into_iter().filter(|run| run.name == name).collect();
        Ok(Past { laptop, name: name.to_owned(), runs, cleaner: Cleaner::new(secrets) })
    }

    /// The run that is named, or that alone begins so.
    fn find(&self, id: &str) -> Result<RunSummary, Failure> {
        let begin: Vec<&RunSummary> = self.runs.iter().filter(|run| run.run.starts_with(id)).collect();
        match (self.runs.iter().find(|run| run.run == id), &begin[..]) {
            (Some(run), _) => Ok(run.clone()),
            (None, [one]) => Ok((*one).clone()),
            (None, []) => Err(Failure::Usage(format!(
                "--run {id}: no such run of {} on this laptop\n    help: `orchestrate runs` lists them",
                self.name
            ))),
            (None, several) => {
                let all: Vec<&str> = several.iter().map(|run| run.run.as_str()).collect();
                Err(Failure::Usage(format!("--run {id}: several runs begin with it: {}", all.join(" "))))
            }
        }
    }

    /// The hosts have no such run any more: this laptop's copy is shown, of the last run where none is named.
    fn instead(&self, wanted: Option<RunSummary>, args: &LogsArgs, outcome: Outcome) -> Result<Outcome, Failure> {
        let has_logs = |run: &&RunSummary| self.dir(run).is_ok_and(|dir| open_logs(dir.path()).is_ok_and(|logs| !logs.hosts().is_empty()));
        let place = if outcome == Outcome::Ok { "on any host" } else { "on the hosts that answered" };
        let Some(run) = wanted.or_else(|| self.runs.iter().rev().find(has_logs).cloned()) else {
            say(&format!("no run of {} is {place}, and this laptop has no logs of one", self.name));
            return Ok(worse(outcome, Outcome::Failed));
        };
        say(&format!("no run of {} is {place}: these are this laptop's copies of {}", self.name, run.run));
        Ok(worse(self.show(&run, args)?, outcome))
    }

    fn dir(&self, run: &RunSummary) -> Result<RunDir, Failure> {
        RunDir::open(&self.laptop.state, &run.run).map_err(|e| Failure::Usage(format!("{}: {e}", self.laptop.state.display())))
    }

    fn show(&self, run: &RunSummary, args: &LogsArgs) -> Result<Outcome, Failure> {
        let size = u32::try_from(run.ranks).ok().filter(|ranks| *ranks > 0);
        show(&self.dir(run)?, args, &self.cleaner, size)?;
        Ok(Outcome::Ok)
    }
}

/// Prints this laptop's copies. `size`: how many ranks the run has, where that is known.
fn show(dir: &RunDir, args: &LogsArgs, cleaner: &Cleaner, size: Option<u32>) -> Result<(), Failure> {
    let cannot = |e: LogError| Failure::Usage(crate::cli::desk::chain(&e));
    let mut store = open_logs(dir.path()).map_err(cannot)?;
    let (hosts, wanted) = (store.hosts().to_vec(), args.ranks());
    if let Some(rank) = wanted.iter().find(|rank| size.is_some_and(|size| **rank >= size)) {
        let last = size.unwrap_or_default().saturating_sub(1);
        return Err(Failure::Usage(format!("--rank {rank}: the run has ranks 0-{last}")));
    }
    if let Some(host) = args.hosts.iter().find(|host| !hosts.contains(host)) {
        return Err(Failure::Usage(format!("--host {host}: the run was on {}", hosts.join(" "))));
    }
    let mut silent = wanted.clone();
    for host in hosts.iter().filter(|host| args.hosts.is_empty() || args.hosts.contains(host)) {
        let mut files: Vec<LogFile> = store.lens(host).map_err(cannot)?.into_iter().map(|(file, _)| file).collect();
        files.sort();
        for file in files {
            let prefix = match file {
                LogFile::Node if wanted.is_empty() => format!("[node {host}] "),
                LogFile::Rank { rank, .. } if wanted.is_empty() || wanted.contains(&rank) => {
                    silent.remove(&rank);
                    format!("[rank {rank} {host}] ")
                }
                LogFile::Node | LogFile::Rank { .. } => continue,
            };
            show_file(&store, (host, file), &cleaner.line(&prefix), args.tail, cleaner)?;
        }
    }
    if !silent.is_empty() {
        let ranks: Vec<u32> = silent.into_iter().collect();
        say(&format!("{} wrote nothing{}", words::ranks(&ranks), if args.hosts.is_empty() { "" } else { " on these hosts" }));
    }
    Ok(())
}

fn show_file(store: &LogStore, (host, file): (&str, LogFile), prefix: &str, tail: Option<usize>, cleaner: &Cleaner) -> Result<(), Failure> {
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
