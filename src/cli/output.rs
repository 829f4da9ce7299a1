//! How a command shows progress: lines, bars, JSON or the dashboard.

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

pub(super) struct OutputOptions {
    pub(super) progress: ProgressMode,
    pub(super) logs: LogSelection,
    /// Log lines go to standard output, as the result of the command.
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

/// `secrets`: values that are masked in all output.
///
/// # Errors
/// No suitable terminal for the dashboard.
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
    let OutputOptions { progress, logs, logs_to_stdout } = output;
    let (sanitizer, advice) = (sanitizer.clone(), advice.clone());
    match progress {
        // `reporter_setup` opens the dashboard.
        ProgressMode::Quiet | ProgressMode::Tui => Vec::new(),
        ProgressMode::Json => spawn_threaded_sink(JsonSink::new(SanitizedLineWriter::stdout(), sanitizer)),
        ProgressMode::Auto | ProgressMode::Bars | ProgressMode::Plain if logs_to_stdout => {
            spawn_threaded_sink(PlainSink::new(SanitizedLineWriter::stdout(), sanitizer, style, logs).with_advice(advice))
        }
        ProgressMode::Auto if std::io::stderr().is_terminal() => {
            spawn_threaded_sink(ProgressBars::stderr(sanitizer, style, logs).with_advice(advice))
        }
        ProgressMode::Bars => spawn_threaded_sink(ProgressBars::stderr(sanitizer, style, logs).with_advice(advice)),
        ProgressMode::Auto | ProgressMode::Plain => {
            spawn_threaded_sink(PlainSink::new(SanitizedLineWriter::stderr(), sanitizer, style, logs).with_advice(advice))
        }
    }
}

/// Runs the sink on its own thread, so that a stopped terminal blocks nothing else.
fn spawn_threaded_sink(sink: impl ReportSink + 'static) -> Vec<Box<dyn ReportSink>> {
    match ThreadedSink::new(sink, RunState::new(), FINISH_TIMEOUT) {
        Ok(sink) => vec![Box::new(sink)],
        Err(error) => {
            print_stderr(&format!("warning: progress is not shown: could not start a thread: {error}"));
            Vec::new()
        }
    }
}
