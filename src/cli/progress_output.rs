//! How a command shows progress: lines, bars, JSON or the dashboard.

use std::io::IsTerminal as _;

use crate::cli::args::{CommonArgs, ProgressMode};
use crate::cli::dashboard::open_dashboard;
use crate::cli::exit::CliError;
use crate::cli::local_env::{print_stderr, terminal_columns, use_color, use_color_on_stdout, user_lang};
use crate::diagnose::advice_formatter::AdviceFormatter;
use crate::lifecycle::reporter_task::ReporterSetup;
use crate::report::ReportSink;
use crate::report::json::JsonSink;
use crate::report::line_writer::{LineOutput, SanitizedLineWriter, SplitLineOutput};
use crate::report::log_lines::LogSelection;
use crate::report::plain::{PlainSettings, PlainSink};
use crate::report::progress_bars::{BarTerminal, ProgressBars, stderr_size};
use crate::report::style::TextStyle;
use crate::report::threaded_sink::{FINISH_TIMEOUT, QueuedLines, ThreadedSink};
use crate::text::sanitize::Sanitizer;

pub(super) struct OutputOptions {
    pub(super) progress: ProgressMode,
    pub(super) logs: LogSelection,
    /// How many of the lines that each log already has are shown on attach; `None`: all.
    pub(super) history_lines: Option<usize>,
}

impl OutputOptions {
    /// Progress alone, without log lines.
    pub(super) fn progress_only(progress: ProgressMode) -> OutputOptions {
        OutputOptions { progress, logs: LogSelection::None, history_lines: None }
    }

    /// A dry run prints a page on standard output, which bars would overwrite as they are cleared.
    pub(super) fn without_bars_if(mut self, dry_run: bool) -> OutputOptions {
        if dry_run && matches!(self.progress, ProgressMode::Auto | ProgressMode::Bars) {
            self.progress = ProgressMode::Plain;
        }
        self
    }

    /// Progress with the log lines of the main rank.
    pub(super) fn with_main_rank(progress: ProgressMode, history_lines: usize) -> OutputOptions {
        OutputOptions { progress, logs: LogSelection::MainRank, history_lines: Some(history_lines) }
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
    advice: AdviceFormatter,
) -> Result<ReporterSetup, CliError> {
    let style = TextStyle { color: use_color(args.color) };
    let sanitizer = Sanitizer::new(secrets);
    let (sinks, dashboard) = if options.progress == ProgressMode::Tui {
        let (sink, dashboard) = open_dashboard(args, &sanitizer, &advice)?;
        (vec![sink], Some(dashboard))
    } else {
        (build_sinks(args, options, style, &sanitizer, &advice), None)
    };
    Ok(ReporterSetup { sinks, dashboard, sanitizer, style, lang: user_lang(), advice })
}

/// Log lines are the output of the command, everything else is its status: as `docker compose up` and `kubectl logs` do, log lines go to
/// standard output. Bars have to print them above themselves if both are one terminal.
fn build_sinks(
    args: &CommonArgs,
    output: OutputOptions,
    style: TextStyle,
    sanitizer: &Sanitizer,
    advice: &AdviceFormatter,
) -> Vec<Box<dyn ReportSink>> {
    let OutputOptions { progress, logs, history_lines } = output;
    let log_style = TextStyle { color: use_color_on_stdout(args.color) };
    let stdout_is_terminal = std::io::stdout().is_terminal();
    let has_bars = match progress {
        // `reporter_setup` opens the dashboard.
        ProgressMode::Quiet | ProgressMode::Tui => return Vec::new(),
        ProgressMode::Json => return spawn_threaded_sink(SanitizedLineWriter::stdout(), |lines| JsonSink::new(lines, sanitizer.clone())),
        ProgressMode::Bars => true,
        // What `| tee` prints would run into the bars.
        ProgressMode::Auto => std::io::stderr().is_terminal() && (stdout_is_terminal || logs == LogSelection::None),
        ProgressMode::Plain => false,
    };
    let stdout: Box<dyn LineOutput> = Box::new(SanitizedLineWriter::stdout());
    let log_style = if has_bars && stdout_is_terminal { style } else { log_style };
    let columns = terminal_columns().map(usize::from);
    let settings = PlainSettings {
        sanitizer: sanitizer.clone(),
        style,
        log_style,
        lang: user_lang(),
        columns,
        advice: advice.clone(),
        logs,
        history_lines,
    };
    if has_bars {
        let terminal = SplitLineOutput::new(BarTerminal::stderr(sanitizer.clone()), (!stdout_is_terminal).then_some(stdout));
        return spawn_threaded_sink(terminal, |lines| ProgressBars::new(lines, Box::new(stderr_size), settings));
    }
    let output = SplitLineOutput::new(SanitizedLineWriter::stderr(), Some(stdout));
    spawn_threaded_sink(output, |lines| PlainSink::new(lines, settings))
}

/// Writes the sink's lines on a thread of the output's own, so that a stopped terminal blocks nothing else.
fn spawn_threaded_sink<S: ReportSink + 'static>(
    output: impl LineOutput + 'static,
    build: impl FnOnce(QueuedLines) -> S,
) -> Vec<Box<dyn ReportSink>> {
    match ThreadedSink::new(output, FINISH_TIMEOUT, build) {
        Ok(sink) => vec![Box::new(sink)],
        Err(error) => {
            print_stderr(&format!("warning: progress is not shown: could not start a thread: {error}"));
            Vec::new()
        }
    }
}
