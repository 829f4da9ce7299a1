//! `ps`: lists what runs on each host.

use crate::cli::args::PsArgs;
use crate::cli::exit::CliError;
use crate::cli::local_env::{print_json, print_stderr, print_stdout, terminal_columns, user_lang};
use crate::cli::open_session::open_query;
use crate::cli::ps_all;
use crate::cli::ps_ranks::{RankRow, collect_ranks};
use crate::cli::text_table::format_table;
use crate::cli::unreachable::print_unreachable;
use crate::event::Outcome;
use crate::plan::existing_run::{HostRunState, host_run_state, is_docker_state_unknown, running_tasks};
use crate::plan::facts::HostFacts;
use crate::plan::overview::DEFAULT_COLUMNS;
use crate::report::style::format_duration;
use crate::text::sanitize::Sanitizer;
use crate::text::translation::Lang;
use crate::text::width::truncate_text;

pub(crate) async fn run(args: &PsArgs) -> Result<Outcome, CliError> {
    let (session, signals) = open_query("ps", &args.common)?;
    if args.all {
        let outcome = match signals.run_until_stopped(ps_all::collect(&session)).await {
            Ok(answers) => ps_all::print_runs(&session, answers, args),
            Err(outcome) => outcome,
        };
        return Ok(session.disconnect(&signals, outcome).await);
    }
    let answers = match signals.run_until_stopped(session.gather_facts(None)).await {
        Ok(answers) => answers,
        Err(outcome) => return Ok(session.disconnect(&signals, outcome).await),
    };
    let now = jiff::Timestamp::now();
    let mut outcome = Outcome::Ok;
    let (mut rows, mut facts, mut unreachable) = (Vec::new(), Vec::new(), Vec::new());
    for (host, answer) in session.host_names().into_iter().zip(answers) {
        let (row, known) = match answer {
            Ok(facts) => (HostRow::new(host, &facts, now), Some(facts)),
            Err(error) => {
                outcome = Outcome::Unreachable;
                unreachable.push((host.clone(), error.to_string(), error.hint().to_owned()));
                (HostRow { host, error: Some(error.to_string()), ..HostRow::default() }, None)
            }
        };
        rows.push(row);
        facts.push(known);
    }
    match signals.run_until_stopped(collect_ranks(&session, &facts)).await {
        Ok(ranks) => rows.iter_mut().zip(ranks).for_each(|(row, ranks)| row.rank_rows = ranks),
        Err(outcome) => return Ok(session.disconnect(&signals, outcome).await),
    }
    let sanitizer = session.reporter.sanitizer();
    if args.common.wants_json(args.json) {
        print_json(&rows.iter().fold(String::new(), |text, row| text + &sanitizer.mask_json(row.to_json().to_string()) + "\n"));
    } else {
        print_stdout(&format_hosts(&rows, sanitizer, user_lang()));
        print_stdout(&format_ranks(&rows, sanitizer, user_lang()));
        if outcome == Outcome::Ok && rows.iter().all(|row| row.run.is_none() && row.container.is_none()) {
            print_stderr(&format!("no run of {} is on any host", session.inventory.name));
        }
    }
    print_unreachable(&session, unreachable);
    Ok(session.disconnect(&signals, outcome).await)
}

/// A row a host.
fn format_hosts(hosts: &[HostRow], sanitizer: &Sanitizer, lang: Lang) -> String {
    let header = [lang.tr("HOST"), lang.tr("RUN"), lang.tr("AGE"), "LAUNCHER", lang.tr("RANKS"), lang.tr("CONTAINER"), lang.tr("OWNER")];
    let cells = hosts.iter().map(|row| row.cells(lang).map(|cell| sanitizer.sanitize_line(&cell)));
    format_table(&std::iter::once(header.map(str::to_owned)).chain(cells).collect::<Vec<_>>())
}

/// A row a rank, after an empty line; empty without ranks.
fn format_ranks(hosts: &[HostRow], sanitizer: &Sanitizer, lang: Lang) -> String {
    let columns = terminal_columns().map_or(DEFAULT_COLUMNS, usize::from);
    let mut rows: Vec<(u32, [String; 5])> = Vec::new();
    for host in hosts {
        let dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        rows.extend(host.rank_rows.iter().map(|row| {
            let line = row.last_line.as_deref().map(|line| sanitizer.sanitize_line(line).replace('\t', " "));
            (
                row.rank,
                [row.rank.to_string(), host.host.clone(), lang.message(&row.state_text()).into_owned(), dash(row.step_text()), dash(line)],
            )
        }));
    }
    rows.sort_by_key(|(rank, _)| *rank);
    let header = ["RANK", lang.tr("HOST"), lang.tr("STATE"), lang.tr("STEP"), lang.tr("LAST LINE")];
    let table: Vec<[String; 5]> = std::iter::once(header.map(str::to_owned)).chain(rows.into_iter().map(|(_, row)| row)).collect();
    if table.len() == 1 {
        return String::new();
    }
    format_table(&table).lines().fold("\n".to_owned(), |text, line| text + &truncate_text(line, columns) + "\n")
}

/// What runs on a host. `None`: nothing of the kind, or not known.
#[derive(Default)]
struct HostRow {
    host: String,
    run: Option<String>,
    started_at: Option<jiff::Timestamp>,
    age_millis: Option<i64>,
    launcher: Option<String>,
    /// Running, ended well, failed, stopped.
    ranks: [usize; 4],
    container: Option<String>,
    owner: Option<String>,
    /// Why the host did not answer.
    error: Option<String>,
    rank_rows: Vec<RankRow>,
}

impl HostRow {
    fn new(host: String, facts: &HostFacts, now: jiff::Timestamp) -> HostRow {
        let launcher = match host_run_state(facts) {
            HostRunState::None => None,
            HostRunState::NotStarted => Some(match running_tasks(facts).first() {
                Some(number) => format!("task {number} running"),
                None if facts.tasks.is_empty() => "not started".to_owned(),
                None => "tasks ended".to_owned(),
            }),
            HostRunState::Running if facts.runs_in_container(true) && is_docker_state_unknown(facts) => {
                Some("unknown: docker does not answer".to_owned())
            }
            HostRunState::Running => Some("running".to_owned()),
            HostRunState::Ended(exit) => Some(format!("ended: {exit}")),
        };
        let running = facts.ranks.iter().filter(|(_, _, exit)| exit.is_none()).count();
        let ended_badly = facts.ranks.iter().filter_map(|(_, _, end)| *end).filter(|(exit, _)| !exit.is_success());
        let (stopped, failed): (Vec<_>, Vec<_>) = ended_badly.partition(|end| facts.was_stopped(*end));
        let (stopped, failed) = (stopped.len(), failed.len());
        let container = facts.container().map_or_else(
            || facts.keeper_pid.map(|_| "keeper".to_owned()),
            |c| Some(if c.oom_killed { format!("{} (out of memory)", c.status) } else { c.status.clone() }),
        );
        let record = facts.run_record();
        let started_at = record.and_then(|record| record.started_at.parse::<jiff::Timestamp>().ok());
        HostRow {
            host,
            run: facts.current_run.clone(),
            started_at,
            age_millis: started_at.map(|started| now.as_millisecond() - started.as_millisecond()),
            launcher,
            ranks: [running, facts.ranks.len() - running - failed - stopped, failed, stopped],
            container,
            owner: record.map(|record| record.owner.clone()),
            error: None,
            rank_rows: Vec::new(),
        }
    }

    fn ranks_text(&self, lang: Lang) -> Option<String> {
        let states = [lang.tr("running"), lang.tr("ok"), lang.tr("failed"), lang.tr("stopped")];
        let counts = self.ranks.iter().zip(states).filter(|(count, _)| **count > 0);
        let texts: Vec<String> = counts.map(|(count, state)| lang.tr_fill("{} {}", &[&count.to_string(), state])).collect();
        (!texts.is_empty()).then(|| texts.join(lang.comma()))
    }

    fn cells(&self, lang: Lang) -> [String; 7] {
        let dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        let said = |text: &Option<String>| dash(text.as_ref().map(|text| lang.message(text).into_owned()));
        let run = if self.error.is_some() { Some(lang.tr("unreachable").to_owned()) } else { self.run.clone() };
        [
            self.host.clone(),
            dash(run),
            dash(self.age_millis.map(format_duration)),
            said(&self.launcher),
            dash(self.ranks_text(lang)),
            said(&self.container),
            dash(self.owner.clone()),
        ]
    }

    fn to_json(&self) -> serde_json::Value {
        let [running, ok, failed, stopped] = self.ranks;
        serde_json::json!({
            "format": "ps 1", "host": self.host, "run": self.run, "started_at": self.started_at.map(|at| at.to_string()),
            "age_seconds": self.age_millis.map(|age| age / 1000), "launcher": self.launcher, "ranks": self.ranks_text(Lang::En),
            "ranks_running": running, "ranks_ok": ok, "ranks_failed": failed, "ranks_stopped": stopped, "container": self.container, "owner": self.owner,
            "error": self.error, "rank_rows": self.rank_rows.iter().map(RankRow::to_json).collect::<Vec<_>>(),
        })
    }
}
