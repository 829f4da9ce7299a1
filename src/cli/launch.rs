//! Turns the options of `up` into a launch request and runs it in a session; `tui` and `check --smoke` launch the same way.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use crate::cli::args::{CommonArgs, PreflightLevel, UpArgs};
use crate::cli::dashboard_shell::spawn_action_handler;
use crate::cli::exit::CliError;
use crate::cli::inventory_files::read_secrets;
use crate::cli::local_env::print_stderr;
use crate::cli::open_session::{listen, open_session};
use crate::cli::progress_output::OutputOptions;
use crate::cli::task_listing::select_tasks;
use crate::event::controls::{DashboardCapabilities, DashboardRole};
use crate::inventory::{Inventory, Job};
use crate::lifecycle::error::WorkflowError;
use crate::lifecycle::file_sources::find_file_sources;
use crate::lifecycle::launch::{LaunchEnd, run_launch};
use crate::lifecycle::launch_request::{LaunchContext, LaunchMode, LaunchRequest};
use crate::lifecycle::session::Session;
use crate::lifecycle::stop_controller::StopController;
use crate::lifecycle::stop_ladder::InterruptPolicy;
use crate::preflight::{PreflightCheck, launch_checks, select_checks};
use crate::report::log_lines::LogSelection;

/// Shown when the dashboard of `demo` opens.
const DEMO_INTRO: &str = "a simulated run of one minute: 1 to 7 switch screens, ? lists the keys, q quits";

/// The inventory with the hosts of `--limit` alone.
pub(super) fn limited(full_inventory: &Inventory, args: &UpArgs) -> Result<Inventory, CliError> {
    let mut inventory = full_inventory.clone();
    if let Some(pattern) = &args.common.limit {
        inventory.limit_hosts(pattern).map_err(|problem| CliError::Inventory(vec![problem]))?;
    }
    Ok(inventory)
}

/// A launch that has ended. The caller closes the session.
pub(super) struct EndedLaunch {
    pub(super) session: Session,
    pub(super) end: LaunchEnd,
    /// What tasks alone have registered on the first host.
    pub(super) registered: Vec<(String, String)>,
}

/// Launches and follows. The caller closes the session.
pub(super) async fn launch(args: &UpArgs, full_inventory: Inventory, base: PathBuf) -> Result<(Session, LaunchEnd), CliError> {
    let mut signals = listen(if args.command.confirms_first() { InterruptPolicy::Detach } else { InterruptPolicy::Abort })?;
    let ended = launch_with_signals(args, full_inventory, base, &mut signals).await?;
    Ok((ended.session, ended.end))
}

/// As [`launch`], in a command that listens for signals already.
pub(super) async fn launch_with_signals(
    args: &UpArgs,
    full_inventory: Inventory,
    base: PathBuf,
    signals: &mut StopController,
) -> Result<EndedLaunch, CliError> {
    let inventory = limited(&full_inventory, args)?;
    let (mut request, launch_error) = build_request(args, full_inventory, &inventory)?;
    let host_names: Vec<&str> = inventory.hosts.iter().map(|host| host.name.as_str()).collect();
    request.file_sources = find_file_sources(&select_tasks(&request.tasks, &request.draft.tasks)?, &host_names, &base)?;
    let mut output = OutputOptions::with_main_rank(args.common.progress, args.tail).without_bars_if(args.dry_run);
    if args.detach {
        output.logs = LogSelection::MainRankUntilDetached;
    }
    let common = CommonArgs { task_flags: args.tasks.to_words(), ..args.common.clone() };
    let mut session = open_session(args.command.name(), &common, (inventory, base), output)?;
    spawn_action_handler(&mut session, signals);
    session.reporter.set_capabilities(DashboardCapabilities::view_only(signals.dashboard_role()));
    if let (LaunchMode::Demo, Some(dashboard)) = (args.command, session.reporter.dashboard()) {
        dashboard.show_message(DEMO_INTRO);
    }
    let [attach, down] = ["attach", "down"].map(|verb| session.suggest_command(verb, ""));
    let mut context = LaunchContext::new(&mut session, &request, launch_error, signals);
    let end = run_launch(&mut context).await?;
    let registered = std::mem::take(&mut context.state.registered);
    // A dashboard that panicked has printed this advice already.
    if matches!(end, LaunchEnd::LeftNow(_)) && !crate::tui::terminal::has_panicked() {
        print_stderr(&match signals.dashboard_role() {
            DashboardRole::Observer => {
                format!(
                    "left at the second Ctrl-C. A live run keeps running; what was under way may leave something on the hosts. To follow it, and to end it:\n    {attach}\n    {down}"
                )
            }
            _ => format!("left without cleaning up; the hosts may hold leftovers. To clean up:\n    {down}"),
        });
    }
    Ok(EndedLaunch { session, end, registered })
}

/// For a launch that is confirmed first, a missing secret is not an error yet: a live run can be followed without it. It is returned beside the request.
fn build_request(
    args: &UpArgs,
    whole_inventory: Inventory,
    inventory: &Inventory,
) -> Result<(LaunchRequest, Option<WorkflowError>), CliError> {
    let draft = Arc::clone(inventory.draft()?);
    if !args.command.is_tasks_only() {
        require_launch(&draft)?;
    }
    let selection = args.tasks.selection();
    if select_tasks(&selection, &draft.tasks)?.is_empty() && args.command.is_tasks_only() {
        let why = if draft.tasks.is_empty() {
            "the inventory has no `prepare` tasks"
        } else {
            "no task has been selected by --tags and --skip-tags"
        };
        return Err(CliError::Usage(format!(
            "nothing to do: {why}\n    help: `orchestrate prepare --list-tasks` lists the tasks with their tags"
        )));
    }
    let mut launch_error = None;
    let mut read_or_defer = |names: &[String]| match read_secrets(names) {
        Err(error) if args.command.confirms_first() => {
            launch_error.get_or_insert(error);
            Ok(Vec::new())
        }
        result => result,
    };
    let (secrets, registry_passwords) = (read_or_defer(&draft.secret_names)?, read_or_defer(&registry_variables(&draft))?);
    let request = LaunchRequest {
        command: args.command,
        whole_inventory,
        limit: args.common.limit.clone(),
        checks: preflight_checks(args.preflight, &draft),
        draft,
        secrets,
        registry_passwords,
        lock_wait: args.lock_wait,
        detach: args.detach,
        keep: args.keep,
        recreate: args.recreate,
        dry_run: args.dry_run,
        show_all_differences: args.diff,
        tasks: selection,
        file_sources: BTreeMap::new(),
        show_scripts: args.common.verbose > 0,
    };
    Ok((request, launch_error))
}

/// # Errors
/// The inventory has tasks alone.
pub(super) fn require_launch(job: &Job) -> Result<(), CliError> {
    if job.has_launch {
        return Ok(());
    }
    let help = "add what to run: launch: { command: [train.py] }; `orchestrate prepare` runs the tasks alone";
    Err(CliError::Usage(format!("the inventory has no `launch`: there is nothing to start after its tasks\n    help: {help}")))
}

/// The environment variables that hold the registry passwords of a job.
fn registry_variables(job: &Job) -> Vec<String> {
    let registries = job.hosts.iter().filter_map(|h| h.container.as_ref()).filter_map(|c| c.registry.as_ref());
    let mut names: Vec<String> = registries.map(|registry| registry.password_variable.clone()).collect();
    names.sort();
    names.dedup();
    names
}

fn preflight_checks(preflight: PreflightLevel, job: &Job) -> Vec<PreflightCheck> {
    match preflight {
        PreflightLevel::Off => Vec::new(),
        PreflightLevel::Full => select_checks(&[], &[], &job.checks.skip).unwrap_or_default(),
        PreflightLevel::Fast => launch_checks(job),
    }
}
