#![expect(clippy::disallowed_methods, reason = "playback follows the clock")]
//! `replay`: plays the journal of a past run on the dashboard.

use std::time::{Duration, Instant};

use crate::cli::args::ReplayArgs;
use crate::cli::dashboard::open_screen;
use crate::cli::exit::CliError;
use crate::cli::journal_player::JournalPlayer;
use crate::cli::local_env::{LocalEnv, dashboard_settings, print_stderr, print_untranslated, terminal_columns, use_color, user_lang};
use crate::cli::open_session::listen;
use crate::diagnose::advice_formatter::AdviceFormatter;
use crate::event::Outcome;
use crate::lifecycle::stop_ladder::InterruptPolicy;
use crate::report::journal::JOURNAL_FILE;
use crate::report::past_runs::{RunDir, RunDirLogs, find_run, list_runs, open_logs};
use crate::report::replay_source::{self, LogTextLoader, ReplayData};
use crate::report::style::TextStyle;
use crate::report::{ReportSink as _, recap};
use crate::state::RunState;
use crate::text::error_chain::error_chain;
use crate::text::sanitize::Sanitizer;
use crate::tui::OpenDashboard;
use crate::tui::feed::{DashboardCapabilities, DashboardRole, FeedMessage};

pub(crate) async fn run(args: &ReplayArgs) -> Result<Outcome, CliError> {
    let local_env = LocalEnv::read()?;
    let dir = open_run(&local_env, &args.run)?;
    let ReplayData { events, problems } = read_journal(&dir)?;
    let settings = dashboard_settings(&args.dashboard, args.color, Vec::new())?;
    let mut signals = listen(InterruptPolicy::Detach)?;
    let OpenDashboard { sender: feed_sender, mut actions, ended } =
        open_screen(DashboardRole::Replay, Sanitizer::default(), settings, &local_env.state_dir)?;
    let mut player = JournalPlayer::new(&events, LogTextLoader::new(open_logs(dir.path()).ok()), feed_sender, args.speed);
    player.feed_sender.send(FeedMessage::Capabilities(DashboardCapabilities::view_only(DashboardRole::Replay)));
    player.feed_sender.send(FeedMessage::Wording(AdviceFormatter::default(), user_lang()));
    player.feed_sender.send(FeedMessage::StoredLogs(Box::new(RunDirLogs(dir.path().to_owned()))));
    if !problems.is_empty() {
        player.feed_sender.send(FeedMessage::ShowToast(problems.clone()));
    }
    let snapshot_request = player.feed_sender.snapshot_request();
    let mut last = Instant::now();
    loop {
        let action = tokio::select! {
            action = actions.recv() => match action {
                Some(action) => Some(action),
                None => break,
            },
            _ = signals.controls.recv() => break,
            () = signals.leave_token.cancelled() => break,
            () = snapshot_request.notified() => None,
            () = sleep_or_wait_forever(player.next_wakeup()) => None,
        };
        player.advance(last.elapsed());
        if action.is_some_and(|action| !player.handle_action(action)) {
            break;
        }
        // A seek in a long journal takes time that is none of the run's.
        last = Instant::now();
        player.send_wanted_snapshot();
    }
    let mut state = RunState::new();
    player.feed_sender.finish(&state).map_err(anyhow::Error::from)?;
    if tokio::time::timeout(Duration::from_secs(5), ended).await.is_err() {
        tracing::debug!("the dashboard did not end");
    }
    if !problems.is_empty() {
        print_stderr(&problems);
    }
    events.iter().for_each(|event| state.apply(event));
    print_recap(&state, &dir, args);
    Ok(Outcome::Ok)
}

fn print_recap(state: &RunState, dir: &RunDir, args: &ReplayArgs) {
    let logs = dir.has_logs().then(|| dir.logs_dir().display().to_string());
    let style = TextStyle { color: use_color(args.color) };
    let context = recap::RecapContext {
        style,
        log_dir: logs,
        lang: user_lang(),
        hide_suggestions: true,
        columns: terminal_columns(),
        ..recap::RecapContext::default()
    };
    recap::render_recap(state, &context).iter().for_each(|line| print_untranslated(line));
}

/// `None` waits forever.
async fn sleep_or_wait_forever(time: Option<Duration>) {
    match time {
        Some(time) => tokio::time::sleep(time).await,
        None => std::future::pending().await,
    }
}

/// Finds a run by its id or a unique prefix.
fn open_run(local_env: &LocalEnv, name: &str) -> Result<RunDir, CliError> {
    let state_error = |e: std::io::Error| CliError::Usage(format!("{}: {e}", local_env.state_dir.display()));
    let runs = list_runs(&local_env.state_dir).map_err(state_error)?;
    let run = find_run(&runs, name).map_err(|candidates| {
        CliError::Usage(match &candidates[..] {
            [] => format!("{name}: no such run on this laptop\n    help: `orchestrate runs` lists them"),
            ids => format!("{name}: several runs begin with it: {}", ids.join(" ")),
        })
    })?;
    RunDir::open(&local_env.state_dir, &run.run).map_err(state_error)
}

fn read_journal(dir: &RunDir) -> Result<ReplayData, CliError> {
    let replay = replay_source::load_replay(dir.path()).map_err(|e| CliError::Usage(error_chain(&e)))?;
    if replay.events.is_empty() {
        let path = dir.path().join(JOURNAL_FILE);
        return Err(CliError::Usage(format!("{}: no events{}", path.display(), replay.problems)));
    }
    Ok(replay)
}
