//! What a command shows while it works: lines, bars, JSON or the dashboard.

use std::io::IsTerminal as _;

use crate::cli::args::{CommonArgs, ProgressMode};
use crate::cli::dashboard::open_dashboard;
use crate::cli::exit::CliError;
use crate::cli::local_env::{print_stderr, resolve_lang, use_color};
use crate::diagnose::command_formatter::CommandFormatter;
use crate::lifecycle::reporter_task::ReporterSetup;
use crate::report::ReportSink;
use crate::report::json::JsonSink;
use crate::report::line_writer::SanitizedLineWriter;
use crate::report::log_lines::LogSelection;
use crate::report::plain::PlainSink;
use crate::report::progress_bars::ProgressBars;
use crate::report::style::TextStyle;
use crate::report::threaded_sink::{FINISH_TIMEOUT, ThreadedSink};
use crate::state::RunState;
use crate::text::sanitize::Sanitizer;

/// Which faces a command shows.
pub(super) struct OutputOptions {
    /// How progress is shown.
    pub(super) progress: ProgressMode,
    /// Whose log lines are shown.
    pub(super) logs: LogSelection,
    /// Whether log lines are the data (standard output) and not talk.
    pub(super) logs_to_stdout: bool,
}

impl OutputOptions {
    /// Progress alone, without log lines.
    pub(super) fn progress_only(progress: ProgressMode) -> OutputOptions {
        OutputOptions { progress, logs: LogSelection::None, logs_to_stdout: false }
    }

    /// Progress with the log lines of the main rank.
    pub(super) fn with_main_rank(progress: ProgressMode) -> OutputOptions {
        OutputOptions { progress, logs: LogSelection::MainRank, logs_to_stdout: false }
    }
}

/// What the reporter of a command is made of. `secrets`: values that are never shown.
///
/// # Errors
/// When there is no terminal for the dashboard.
pub(super) fn reporter_setup(
    args: &CommonArgs,
    options: OutputOptions,
    secrets: &[String],
    advice: CommandFormatter,
) -> Result<ReporterSetup, CliError> {
    let style = TextStyle { color: use_color(args.color) };
    let sanitizer = Sanitizer::new(secrets);
    let (sinks, dashboard) = if options.progress == ProgressMode::Tui {
        let (sink, dashboard) = open_dashboard(args, &sanitizer, &advice)?;
        (vec![sink], Some(dashboard))
    } else {
        (build_sinks(options, style, &sanitizer, &advice), None)
    };
    Ok(ReporterSetup { sinks, dashboard, sanitizer, style, lang: resolve_lang(args.lang), advice })
}

fn build_sinks(output: OutputOptions, style: TextStyle, sanitizer: &Sanitizer, advice: &CommandFormatter) -> Vec<Box<dyn ReportSink>> {
    let OutputOptions { progress, logs, logs_to_stdout: data } = output;
    let (cleaner, advice) = (sanitizer.clone(), advice.clone());
    match progress {
        // The dashboard is opened elsewhere.
        ProgressMode::Quiet | ProgressMode::Tui => Vec::new(),
        ProgressMode::Json => spawn_threaded_sink(JsonSink::new(SanitizedLineWriter::stdout(), cleaner)),
        ProgressMode::Auto | ProgressMode::Bars | ProgressMode::Plain if data => {
            spawn_threaded_sink(PlainSink::new(SanitizedLineWriter::stdout(), cleaner, style, logs).with_advice(advice))
        }
        ProgressMode::Auto if std::io::stderr().is_terminal() => {
            spawn_threaded_sink(ProgressBars::stderr(cleaner, style, logs).with_advice(advice))
        }
        ProgressMode::Bars => spawn_threaded_sink(ProgressBars::stderr(cleaner, style, logs).with_advice(advice)),
        ProgressMode::Auto | ProgressMode::Plain => {
            spawn_threaded_sink(PlainSink::new(SanitizedLineWriter::stderr(), cleaner, style, logs).with_advice(advice))
        }
    }
}

/// A face on a thread of its own: a terminal that is stopped stops nothing else.
fn spawn_threaded_sink(sink: impl ReportSink + 'static) -> Vec<Box<dyn ReportSink>> {
    match ThreadedSink::new(sink, RunState::new(), FINISH_TIMEOUT) {
        Ok(face) => vec![Box::new(face)],
        Err(error) => {
            print_stderr(&format!("warning: nothing is shown on the way: no thread to be had: {error}"));
            Vec::new()
        }
    }
}
