//! Loads the inventory and opens the session of a command that reaches hosts.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::cli::args::{CommonArgs, ProgressMode};
use crate::cli::exit::CliError;
use crate::cli::inventory_files::{load_diagnosis_rules, read_inventory_files};
use crate::cli::local_env::{LocalEnv, TerminalConsole, build_advice, hide_known_secrets, print_stderr, raise_nofile_limit, user_lang};
use crate::cli::progress_output::{OutputOptions, reporter_setup};
use crate::diagnose::RuleSet;
use crate::event::follows_run;
use crate::inventory::lint::{LintFinding, LintSeverity};
use crate::inventory::{Inventory, InventoryHost};
use crate::lifecycle::local_context::LocalContext;
use crate::lifecycle::session::Session;
use crate::lifecycle::slurm_job::LoginNode;
use crate::lifecycle::stop_controller::StopController;
use crate::lifecycle::stop_ladder::InterruptPolicy;

/// Which parts of the inventory must be valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LoadMode {
    Full,
    /// The hosts and their connection settings.
    ConnectionOnly,
}

/// Loads the inventory of a command; also returns the directory that its relative paths start from.
///
/// # Errors
/// Every problem in the inventory.
pub(super) fn load_inventory(args: &CommonArgs, mode: LoadMode) -> Result<(Inventory, PathBuf), CliError> {
    let (mut inventory, base) = read_inventory(args, mode)?;
    if inventory.hosts.is_empty() {
        let message = "the inventory has no `hosts`: it is for SLURM alone\n    help: `orchestrate slurm --help` lists the commands for it; or add hosts";
        return Err(CliError::Usage(message.to_owned()));
    }
    if let Some(pattern) = &args.limit {
        inventory.limit_hosts(pattern).map_err(|problem| CliError::Inventory(vec![problem]))?;
    }
    Ok((inventory, base))
}

/// Loads the inventory of a command for SLURM, which chooses the hosts; also returns the directory that its relative paths start from.
///
/// # Errors
/// Every problem in the inventory; `--limit`.
pub(super) fn load_slurm_inventory(args: &CommonArgs, mode: LoadMode) -> Result<(Inventory, PathBuf), CliError> {
    if args.limit.is_some() {
        let help = "set slurm.nodes, for example with --set slurm.nodes=1";
        return Err(CliError::Usage(format!("--limit: SLURM chooses the hosts\n    help: {help}")));
    }
    read_inventory(args, mode)
}

fn read_inventory(args: &CommonArgs, mode: LoadMode) -> Result<(Inventory, PathBuf), CliError> {
    let (sources, base) = read_inventory_files(args)?;
    let inventory = match mode {
        LoadMode::Full => apply_lints(Inventory::load(&sources, &args.set)?, args)?,
        LoadMode::ConnectionOnly => Inventory::load_connection(&sources, &args.set)?,
    };
    Ok((inventory, base))
}

/// Whether the inventory has a login node and no `hosts`.
///
/// # Errors
/// Every problem in the inventory.
pub(super) fn is_for_slurm_alone(args: &CommonArgs) -> Result<bool, CliError> {
    let (sources, _) = read_inventory_files(args)?;
    let inventory = Inventory::load_connection(&sources, &args.set)?;
    Ok(inventory.hosts.is_empty() && inventory.slurm.is_some_and(|slurm| slurm.login.is_some()))
}

/// Opens the session of a command for SLURM, and the connection to the login node. The session has no hosts: the job's nodes come when it runs.
///
/// # Errors
/// As [`open_session`]; no login node.
pub(super) fn open_slurm_session(
    command: &'static str,
    args: &CommonArgs,
    (mut inventory, base_dir): (Inventory, PathBuf),
    output: OutputOptions,
) -> Result<(Session, LoginNode), CliError> {
    let settings = inventory.slurm.as_ref();
    let Some(login) = settings.and_then(|settings| settings.login.clone()) else {
        let help = "add the name of the cluster's login node, as ssh knows it: slurm: { login: login01 }";
        return Err(CliError::Usage(format!("`slurm.login` is missing\n    help: {help}")));
    };
    raise_nofile_limit(settings.map_or(0, |settings| settings.nodes as usize)).map_err(CliError::Usage)?;
    inventory.hosts.clear();
    let session = open_session_through(Some(login.clone()), command, args, (inventory, base_dir), output)?;
    let login = LoginNode::open(&session, login);
    Ok((session, login))
}

/// Prints lint warnings; denied lints are errors.
fn apply_lints(inventory: Inventory, args: &CommonArgs) -> Result<Inventory, CliError> {
    let (denied, warnings): (Vec<LintFinding>, Vec<LintFinding>) =
        inventory.run_lints(&args.deny)?.into_iter().partition(|finding| finding.severity == LintSeverity::Deny);
    let (lang, advice) = (user_lang(), build_advice(args, Path::new("."), &[]));
    for finding in &warnings {
        let text = format!("{}{}", lang.tr("warning: "), finding.problem.text(lang));
        print_stderr(&advice.complete_commands(&text));
    }
    if denied.is_empty() { Ok(inventory) } else { Err(CliError::Inventory(denied.into_iter().map(|finding| finding.problem).collect())) }
}

/// Opens the session without connecting to any host.
///
/// # Errors
/// Too few open files for these hosts, no terminal for the dashboard, or problems in the user's rules.
pub(super) fn open_session(
    command: &'static str,
    args: &CommonArgs,
    loaded: (Inventory, PathBuf),
    output: OutputOptions,
) -> Result<Session, CliError> {
    open_session_through(None, command, args, loaded, output)
}

/// Starts to listen for signals.
///
/// # Errors
/// A signal handler could not be installed.
pub(super) fn listen(policy: InterruptPolicy) -> Result<StopController, CliError> {
    Ok(StopController::listen(policy, print_stderr).map_err(anyhow::Error::from)?)
}

/// Opens the session of a command that changes no run and whose only output is its result.
///
/// # Errors
/// As [`load_inventory`] and [`open_session`].
pub(super) fn open_query(command: &'static str, args: &CommonArgs) -> Result<(Session, StopController), CliError> {
    let loaded = load_inventory(args, LoadMode::ConnectionOnly)?;
    let session = open_session(command, args, loaded, OutputOptions::progress_only(ProgressMode::Quiet))?;
    Ok((session, listen(InterruptPolicy::Cancel)?))
}

fn open_session_through(
    login: Option<InventoryHost>,
    command: &'static str,
    args: &CommonArgs,
    (inventory, base_dir): (Inventory, PathBuf),
    output: OutputOptions,
) -> Result<Session, CliError> {
    let secrets = hide_known_secrets(&inventory);
    let local_env = LocalEnv::read()?;
    raise_nofile_limit(inventory.hosts.len()).map_err(CliError::Usage)?;
    let advice = build_advice(args, &base_dir, &inventory.hosts);
    let advice = if command.starts_with("slurm ") { advice.for_slurm_job() } else { advice };
    let history_lines = output.history_lines;
    let reporter = reporter_setup(args, output, &secrets, advice)?;
    let (rules, rule_error) = match command {
        followed if follows_run(followed) => (load_user_rules(&inventory, &base_dir)?, None),
        // A broken rule must not block these.
        "down" | "logs" | "slurm down" | "slurm logs" => {
            load_user_rules(&inventory, &base_dir).map_or_else(|error| (None, Some(error)), |rules| (rules, None))
        }
        _ => (None, None),
    };
    let local = LocalContext {
        identity: local_env.lock_identity(),
        ssh: local_env.connection_settings(&base_dir, args),
        state_dir: local_env.state_dir,
        forks: args.forks,
        assume_yes: args.yes,
        console: Arc::new(TerminalConsole),
        login,
    };
    let mut session = Session::open(command, inventory, local, reporter);
    session.history_lines = history_lines.unwrap_or_default();
    if let Some(rules) = rules {
        session.reporter.set_rules(rules);
    }
    // `logs` prints no cause.
    if let Some(error) = rule_error.filter(|_| !command.ends_with("logs")) {
        session.notice(format!("only the built-in rules explain a failure: {}", first_line(error)), true);
    }
    Ok(session)
}

fn first_line(error: CliError) -> String {
    let text = match error {
        CliError::Usage(text) => text,
        CliError::Inventory(problems) => problems.first().map(ToString::to_string).unwrap_or_default(),
        CliError::Bug(error) => error.to_string(),
        CliError::RemoteExit(_) => String::new(),
    };
    text.lines().next().unwrap_or_default().to_owned()
}

fn load_user_rules(inventory: &Inventory, base_dir: &Path) -> Result<Option<RuleSet>, CliError> {
    let rules = load_diagnosis_rules(inventory.diagnosis_rule_source()?, base_dir)?;
    rules.map(|rules| RuleSet::with_user_rules(rules).map_err(CliError::Inventory)).transpose()
}
