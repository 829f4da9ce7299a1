//! `check`: preflight alone. Asks the hosts, judges, shows the matrix; changes nothing.

use tokio::time::Instant;

use crate::cli::args::{CheckArgs, Progress};
use crate::cli::checks::{addresses, deepen, judged, survey};
use crate::cli::desk::Faces;
use crate::cli::exit::{Failure, worse};
use crate::cli::laptop::{known_secrets, print, print_json, say};
use crate::cli::session::{Need, Session, inventory};
use crate::cli::smoke;
use crate::event::{EventKind, Outcome};
use crate::inventory::{Job, Known};
use crate::plan::check::smoke::{CHECK, NAME};
use crate::plan::check::{ALL, Answer, Check, chosen};
use crate::plan::facts::HostFacts;
use crate::plan::words::{Level, Phase};
use crate::plan::world::given_gpus;
use crate::report::check::{self as page, Page};
use crate::report::loglines::Logs;

/// Runs it.
///
/// # Errors
/// What must be said to the person.
pub async fn run(args: &CheckArgs) -> Result<Outcome, Failure> {
    if args.list {
        print(&page::list(&[&ALL[..], &[CHECK]].concat()));
        return Ok(Outcome::Ok);
    }
    let wish = Wish::of(args);
    // A word that names no check is told before anybody is asked anything.
    wish.checks(&[])?;
    let (inventory, base) = inventory(&args.host, Need::Launch)?;
    let unknown = Known { gpus: vec![None; inventory.hosts.len()], addresses: vec![None; inventory.hosts.len()], ..Known::default() };
    let draft = inventory.job(&unknown)?;
    let checks = wish.checks(&draft.checks.skip)?;
    let progress = if args.host.progress == Progress::Auto { Progress::Quiet } else { args.host.progress };
    let secrets = known_secrets(&inventory);
    let faces = Faces { progress, logs: Logs::None, data: false };
    let mut session = Session::open("check", &args.host, inventory, base.clone(), faces, &secrets)?;
    session.begin("", None);
    let began = Instant::now();
    let looked = async {
        let (mut facts, mut told, mut lost) = (Vec::new(), Vec::new(), Vec::new());
        for (name, (answer, answers)) in session.names().into_iter().zip(survey(&session, &draft, &checks).await) {
            match answer {
                Ok(found) => facts.push(Some(found)),
                Err(error) => {
                    lost.push((name, error.to_string(), error.hint().to_owned()));
                    facts.push(None);
                }
            }
            told.push(answers);
        }
        session.engine.emitter().send(EventKind::PhaseStarted { phase: Phase::Preflight });
        let known = known(&session, &facts);
        let (job, problems) = known_job(&session, &draft, &known);
        deepen(&session, &job, &checks, &facts, &mut told).await;
        (judged(&session.inventory, &job, &facts, &told, &checks, false), lost, problems, facts, known)
    };
    let (mut answers, lost, problems, facts, known) = tokio::select! {
        looked = looked => looked,
        result = tokio::signal::ctrl_c() => {
            result.map_err(anyhow::Error::from)?;
            session.finish(Outcome::Signal(2), "stopped", false).await;
            return Ok(Outcome::Signal(2));
        }
    };
    for (_, cell) in answers.iter_mut().flat_map(|answer| &mut answer.cells) {
        cell.hint = session.desk.advice().complete(&cell.hint);
    }
    for answer in &answers {
        tell(&session, answer);
    }
    let mut ended = Outcome::Ok;
    if wish.smoke {
        let failed = (!lost.is_empty()).then_some("a host is unreachable");
        let failed = failed.or(answers.iter().any(|a| a.level() == Level::Fail).then_some("a check failed"));
        let failed = failed.or((!problems.is_empty()).then_some("the inventory does not fit the hosts"));
        let before = smoke::Before { draft: &draft, known: &known, facts: &facts, failed };
        let (answer, outcome) = smoke::run(&session, &args.host, &base, before).await?;
        tell(&session, &answer);
        answers.push(answer);
        ended = outcome;
    }
    let worst = answers.iter().map(Answer::level).max().unwrap_or(Level::Skipped);
    let mut outcome = if worst == Level::Fail || !problems.is_empty() { Outcome::Refused } else { Outcome::Ok };
    if !lost.is_empty() {
        outcome = worse(Outcome::Unreachable, outcome);
    }
    outcome = worse(ended, outcome);
    let context = Page {
        name: &session.inventory.name.clone(),
        hosts: &session.names(),
        lost: &lost,
        style: session.desk.style(),
        cleaner: session.desk.cleaner().clone(),
        took: began.elapsed(),
    };
    if args.json {
        print_json(&format!("{:#}\n", page::json(&context, &answers, &outcome)));
    } else if args.host.progress != Progress::Json {
        print(&page::text(&context, &answers));
    }
    for problem in problems {
        say(&problem);
    }
    let (outcome, _) = session.finish(outcome, "", false).await;
    Ok(outcome)
}

/// Which checks the person wants, and whether the smoke as well.
struct Wish {
    only: Vec<String>,
    skip: Vec<String>,
    /// Nothing but the smoke.
    alone: bool,
    smoke: bool,
}

impl Wish {
    fn of(args: &CheckArgs) -> Wish {
        let rest = |words: &[String]| words.iter().filter(|word| *word != NAME).cloned().collect::<Vec<_>>();
        let names = |words: &[String]| words.iter().any(|word| word == NAME);
        let (only, skip) = (rest(&args.only), rest(&args.skip));
        let smoke = (args.smoke || names(&args.only)) && !names(&args.skip);
        Wish { alone: names(&args.only) && only.is_empty(), only, skip, smoke }
    }

    fn checks(&self, skipped: &[String]) -> Result<Vec<Check>, Failure> {
        let checks = chosen(&self.only, &self.skip, skipped).map_err(Failure::Usage)?;
        Ok(if self.alone { Vec::new() } else { checks })
    }
}

/// What the hosts told of what a job is made of.
fn known(session: &Session, facts: &[Option<HostFacts>]) -> Known {
    let inventory = &session.inventory;
    let gpus = |(host, facts): (_, &Option<HostFacts>)| facts.as_ref().map(|f| given_gpus(host, f)).filter(|n| *n > 0);
    Known {
        gpus: inventory.hosts.iter().zip(facts).map(gpus).collect(),
        addresses: addresses(inventory, facts).into_iter().map(|a| Some(a).filter(|a| !a.is_empty())).collect(),
        master_port: facts.first().and_then(Option::as_ref).and_then(|f| f.free_port),
        ..Known::default()
    }
}

/// The job with what the hosts told; the draft where that does not fit, with what is wrong.
fn known_job(session: &Session, draft: &Job, known: &Known) -> (Job, Vec<String>) {
    match session.inventory.job(known) {
        Ok(job) => (job, Vec::new()),
        Err(problems) => (draft.clone(), problems.iter().map(ToString::to_string).collect()),
    }
}

/// Tells what a check found, once for all hosts of which it is the same.
pub fn tell(session: &Session, answer: &Answer) {
    for group in answer.groups() {
        session.engine.emitter().send(EventKind::Checked {
            check: answer.check.name.to_owned(),
            level: group.cell.level,
            hosts: group.hosts.iter().map(|h| u32::try_from(*h).unwrap_or(u32::MAX)).collect(),
            what: page::sentence(&group.cell),
            hint: group.cell.hint,
        });
    }
}
