//! Connects workflows to the dashboard.

use std::path::Path;
use std::sync::Arc;

use crate::cli::args::CommonArgs;
use crate::cli::clipboard::LocalClipboard;
use crate::cli::exit::CliError;
use crate::cli::local_env::{LocalEnv, dashboard_settings};
use crate::diagnose::advice_formatter::AdviceFormatter;
use crate::event::controls::{DashboardCapabilities, DashboardRole};
use crate::lifecycle::operator::{DashboardHandle, DashboardView};
use crate::report::ReportSink;
use crate::report::past_runs::RunDirLogs;
use crate::text::sanitize::Sanitizer;
use crate::text::translation::Lang;
use crate::tui::OpenDashboard;
use crate::tui::feed::{FeedMessage, WeakFeedSender};
use crate::tui::settings::DashboardSettings;

/// # Errors
/// No suitable terminal.
pub(super) fn open_dashboard(
    args: &CommonArgs,
    sanitizer: &Sanitizer,
    advice: &AdviceFormatter,
) -> Result<(Box<dyn ReportSink>, DashboardHandle), CliError> {
    let panic_advice = vec![format!(
        "    the ranks keep running: `{}` shows them, `{}` ends them",
        advice.format_command("tui", ""),
        advice.format_command("down", "")
    )];
    let settings = dashboard_settings(&args.dashboard, args.color, panic_advice)?;
    let open = open_screen(DashboardRole::Observer, sanitizer.clone(), settings, &LocalEnv::read()?.state_dir)?;
    #[cfg(debug_assertions)]
    crate::cli::fault_injection::spawn_fault_listener(open.sender.downgrade());
    let (view, snapshot_request) = (Arc::new(FeedDashboard(open.sender.downgrade())), open.sender.snapshot_request());
    Ok((Box::new(open.sender), DashboardHandle { view, snapshot_request, user_actions: Some(open.actions), closed: open.ended }))
}

/// # Errors
/// The terminal or the system refuses.
pub(super) fn open_screen(
    role: DashboardRole,
    sanitizer: Sanitizer,
    settings: DashboardSettings,
    state_dir: &Path,
) -> Result<OpenDashboard, CliError> {
    let open = crate::tui::open_dashboard(role, sanitizer, settings);
    let open = open.map_err(|e| CliError::Usage(format!("could not open the dashboard on this terminal: {e}")))?;
    open.sender.send(FeedMessage::Clipboard(Box::new(LocalClipboard::new(state_dir))));
    open.sender.send(FeedMessage::UtcOffset(jiff::Zoned::now().offset().seconds().into()));
    Ok(open)
}

struct FeedDashboard(WeakFeedSender);

impl FeedDashboard {
    fn send(&self, message: FeedMessage) {
        if !self.0.send(message) {
            tracing::debug!("the dashboard has ended");
        }
    }
}

impl DashboardView for FeedDashboard {
    fn set_capabilities(&self, capabilities: DashboardCapabilities) {
        self.send(FeedMessage::Capabilities(capabilities));
    }

    fn show_message(&self, text: &str) {
        self.send(FeedMessage::ShowToast(text.to_owned()));
    }

    fn set_wording(&self, advice: AdviceFormatter, lang: Lang) {
        self.send(FeedMessage::Wording(advice, lang));
    }

    fn set_run_dir(&self, path: &Path) {
        self.send(FeedMessage::StoredLogs(Box::new(RunDirLogs(path.to_owned()))));
    }
}
