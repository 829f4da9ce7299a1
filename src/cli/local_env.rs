#![expect(clippy::disallowed_methods, reason = "the laptop's environment and files are read here")]
//! What this laptop is: folders, names, variables, terminals; and the one way to ask the person at it.

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;

use crate::cli::args::{ColorChoice, CommonArgs, DashboardArgs, Language};
use crate::cli::dashboard_config;
use crate::cli::exit::CliError;
use crate::cli::laptop_id;
use crate::diagnose::Lang;
use crate::diagnose::command_formatter::CommandFormatter;
use crate::engine::lock::LockIdentity;
use crate::inventory::diagnosis_rules::{DiagnosisRule, DiagnosisRuleSource};
use crate::inventory::{Inventory, InventoryHost, InventorySource};
use crate::lifecycle::error::WorkflowError;
use crate::lifecycle::operator::Console;
use crate::lifecycle::random::random_hex;
use crate::remote::{SshSettings, UserPrompt};
use crate::report::safe_output;
use crate::text::shell_quote::quote;
use crate::tui::settings::{DashboardSettings as Dashboard, MouseMode};
use crate::tui::theme::{ColorScheme, Theme};

/// Open files beside one for each host: what a run cannot do without, and what keys, agents and known_hosts of 64 handshakes at once, logs and
/// the journal may need. A ProxyCommand needs a second one for its host.
const MIN_RESERVED_FILES: usize = 64;
const RESERVED_FILES: usize = 256;

/// Folders and names, read once.
#[derive(Debug, Clone)]
pub(crate) struct LocalEnv {
    pub home: PathBuf,
    pub user: String,
    pub hostname: String,
    /// `$XDG_STATE_HOME/orchestrate`.
    pub state_dir: PathBuf,
}

impl LocalEnv {
    /// Reads it.
    ///
    /// # Errors
    /// Where there is no home folder.
    pub(crate) fn read() -> anyhow::Result<LocalEnv> {
        let home = std::env::home_dir().filter(|h| !h.as_os_str().is_empty()).context("there is no home folder: set HOME")?;
        let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|p| p.is_absolute());
        let user = std::env::var("USER").or_else(|_| std::env::var("LOGNAME")).unwrap_or_else(|_| "root".to_owned());
        let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let state = state.unwrap_or_else(|| home.join(".local/state")).join("orchestrate");
        Ok(LocalEnv { home, user, hostname: name, state_dir: state })
    }

    /// Who we are to other operators.
    pub(crate) fn lock_identity(&self) -> LockIdentity {
        let plain = |s: &str| s.replace([':', '\n', ' ', '/'], "-");
        LockIdentity {
            token: random_hex(8),
            owner: format!("{}@{}", plain(&self.user), plain(&self.hostname)),
            // Machines that share a home share its id: their names tell them apart.
            local_machine_id: crate::plan::protocol::run_record::short_hash(&format!(
                "{} {}",
                laptop_id::laptop_id(&self.state_dir),
                self.hostname
            ))
            .chars()
            .take(16)
            .collect(),
            pid: std::process::id(),
            is_process_alive: |pid| {
                i32::try_from(pid)
                    .ok()
                    .and_then(rustix::process::Pid::from_raw)
                    .is_some_and(|p| !matches!(rustix::process::test_kill_process(p), Err(rustix::io::Errno::SRCH)))
            },
        }
    }

    /// What connections take from this laptop.
    pub(crate) fn connection_settings(&self, base: &Path, args: &CommonArgs) -> SshSettings {
        SshSettings {
            home: self.home.clone(),
            inventory_dir: base.to_owned(),
            config_file: args.ssh_config.clone(),
            agent_socket: std::env::var_os("SSH_AUTH_SOCK").map(PathBuf::from).filter(|p| !p.as_os_str().is_empty()),
            search_path: std::env::var_os("PATH"),
            local_user: self.user.clone(),
            prompt: Arc::new(TtyPrompt),
            max_handshakes: args.forks,
            env: Arc::new(|name| std::env::var(name).ok()),
        }
    }
}

/// Makes room for connections to `hosts` hosts: raises the limit of open files as far as they may need it and the system allows it.
///
/// # Errors
/// That not even one file a host is allowed, with the number that is needed.
pub(crate) fn raise_nofile_limit(hosts: usize) -> Result<(), String> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let number = |files: usize| u64::try_from(files).unwrap_or(u64::MAX);
    let (least, wanted) =
        (number(hosts.saturating_add(MIN_RESERVED_FILES)), number(hosts.saturating_mul(2).saturating_add(RESERVED_FILES)));
    let limit = getrlimit(Resource::Nofile);
    let target = limit.maximum.map_or(wanted, |most| most.min(wanted));
    let Some(current) = limit.current.filter(|current| *current < target) else { return Ok(()) };
    let raised = setrlimit(Resource::Nofile, Rlimit { current: Some(target), maximum: limit.maximum });
    if let Err(error) = &raised {
        tracing::debug!(%error, target, "the limit of open files stays");
    }
    let allowed = if raised.is_ok() { target } else { current };
    if allowed >= least {
        return Ok(());
    }
    Err(format!(
        "{hosts} hosts need {least} open files, and the system allows {allowed}: raise it (`ulimit -Hn {least}` as root), or take fewer hosts with --limit"
    ))
}

/// Keeps memory out of core dumps: passwords and secrets are in it. A program that this one starts may allow itself its own.
pub(crate) fn disable_core_dumps() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Core);
    if let Err(error) = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: limit.maximum }) {
        tracing::debug!(%error, "the size of core dumps stays");
    }
}

/// The terminal, for workflows.
pub(super) struct TerminalConsole;

impl Console for TerminalConsole {
    fn print_stderr(&self, text: &str) {
        print_stderr(text);
    }

    fn print_stdout(&self, text: &str) {
        print_stdout(text);
    }

    fn confirm(&self, question: &str) -> bool {
        TtyPrompt.ask_line(&format!("{question} [y/N]")).is_some_and(|answer| matches!(answer.trim(), "y" | "Y" | "yes"))
    }

    fn columns(&self) -> Option<u16> {
        terminal_columns()
    }
}

/// The person at the terminal, if there is one.
struct TtyPrompt;

impl UserPrompt for TtyPrompt {
    fn ask_secret(&self, what: &str) -> Option<String> {
        if !std::io::stdin().is_terminal() {
            return None;
        }
        // A server words it.
        let shown = safe_output::to_printable(&format!("{what}: "));
        crate::tui::terminal::with_normal_screen(|| rpassword::prompt_password(shown.as_str()).ok())
    }

    fn ask_line(&self, what: &str) -> Option<String> {
        let mut answer = String::new();
        let shown = safe_output::to_printable(&format!("{what}: "));
        if !std::io::stdin().is_terminal() || write!(std::io::stderr(), "{}", shown.as_str()).is_err() {
            return None;
        }
        let read = std::io::stdin().read_line(&mut answer).ok().filter(|n| *n > 0);
        read.map(|_| answer.trim_end_matches(['\r', '\n']).to_owned())
    }

    fn show_notice(&self, text: &str) {
        print_stderr(text);
    }
}

/// One line on standard error; a closed one is no reason to stop. The dashboard's screen is not written into: then it is said afterwards.
/// Whatever is in the text, a terminal gets nothing of it but letters, and no secret.
pub(crate) fn print_stderr(text: &str) {
    let text = safe_output::to_printable(text);
    if crate::tui::terminal::defer_line_until_restore(&text) {
        return;
    }
    if safe_output::write_stderr_line(&text).is_err() {
        tracing::debug!("standard error is closed");
    }
}

/// Text for a person on standard output, cleaned as by `say`. A reader that went away (`| head`) is no error.
pub(crate) fn print_stdout(text: &str) {
    if safe_output::write_stdout(&safe_output::to_printable(text)).is_err() {
        tracing::debug!("standard output is closed");
    }
}

/// JSON on standard output: what a terminal might obey is escaped, so that programs read what was meant.
pub(crate) fn print_json(text: &str) {
    if safe_output::write_stdout(&safe_output::to_printable_json(text)).is_err() {
        tracing::debug!("standard output is closed");
    }
}

/// A script or a file on standard output. A pipe or a file gets every byte: it is to be run or read again; a terminal gets it cleaned.
pub(crate) fn print_raw_unless_tty(text: &str) {
    if std::io::stdout().is_terminal() {
        return print_stdout(text);
    }
    let mut out = std::io::stdout().lock();
    if out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_err() {
        tracing::debug!("standard output is closed");
    }
}

/// Hides the values of the secrets that an inventory names and this environment has; all values that are hidden.
pub(crate) fn hide_known_secrets(inventory: &Inventory) -> Vec<String> {
    safe_output::register_secrets(inventory.secret_variables().iter().filter_map(|name| std::env::var(name).ok()).collect())
}

/// The language that is wanted, or that the environment asks for: LC_ALL before LC_MESSAGES before LANG (POSIX, 8.2).
pub(crate) fn resolve_lang(wanted: Option<Language>) -> Lang {
    let named = || ["LC_ALL", "LC_MESSAGES", "LANG"].iter().find_map(|name| std::env::var(name).ok().filter(|value| !value.is_empty()));
    match wanted {
        Some(Language::Zh) => Lang::Zh,
        Some(Language::En) => Lang::En,
        None if named().is_some_and(|value| value.starts_with("zh")) => Lang::Zh,
        None => Lang::En,
    }
}

/// Whether to use colours on standard error.
pub(crate) fn use_color(when: ColorChoice) -> bool {
    match when {
        ColorChoice::Always => true,
        ColorChoice::Never => false,
        ColorChoice::Auto => {
            std::io::stderr().is_terminal()
                && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty())
                && std::env::var_os("TERM").is_none_or(|t| t != "dumb")
        }
    }
}

/// The columns of the terminal behind standard error; none where it is a file, a pipe, or does not say.
pub(crate) fn terminal_columns() -> Option<u16> {
    let size = rustix::termios::tcgetwinsize(std::io::stderr()).ok()?;
    (size.ws_col > 0).then_some(size.ws_col)
}

/// How the dashboard is on this terminal: flags, then the person's settings, then what the terminal is. `farewell`: what is said when the
/// dashboard breaks.
///
/// # Errors
/// Where there is no terminal for it; every problem of the settings.
pub(crate) fn dashboard_settings(dashboard_args: &DashboardArgs, when: ColorChoice, farewell: Vec<String>) -> Result<Dashboard, CliError> {
    let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let term = set("TERM");
    crate::tui::terminal::check_terminal_support(term.as_deref()).map_err(CliError::Usage)?;
    let config = dashboard_config::read_config(&LocalEnv::read()?.home)?;
    let locale = set("LC_ALL").or_else(|| set("LC_CTYPE")).or_else(|| set("LANG")).unwrap_or_default().to_ascii_lowercase();
    let console = term.as_deref() == Some("linux");
    let unicode = (locale.contains("utf-8") || locale.contains("utf8")) && !console;
    let ascii = dashboard_args.ascii || config.ascii.unwrap_or(!unicode);
    let named = dashboard_args.theme.as_deref().map(dashboard_config::parse_color_scheme).transpose().map_err(CliError::Usage)?;
    let plain = match when {
        ColorChoice::Always => false,
        ColorChoice::Never => true,
        // A theme that is asked for in so many words is wanted.
        ColorChoice::Auto => set("NO_COLOR").is_some() && named.is_none(),
    };
    let wanted = named.or(config.skin).unwrap_or(None);
    let (skin, ask) = match wanted {
        _ if plain => (ColorScheme::Mono, false),
        Some(skin) => (skin, false),
        None if console => (ColorScheme::Ansi16, false),
        None => (ColorScheme::Dark, true),
    };
    let mut theme = Theme::new(skin, ascii);
    theme.graph_style = config.graph.filter(|_| !ascii).unwrap_or(theme.graph_style);
    let mouse = config.mouse.unwrap_or(MouseMode::Auto);
    Ok(Dashboard {
        theme,
        query_background_color: ask,
        mouse_mode: mouse,
        bindings: config.bindings,
        readonly: dashboard_args.readonly || config.readonly,
        panic_advice: farewell,
    })
}

/// What makes the commands complete that are advised to who typed these words. `hosts`: those that `ssh` reaches by more than their name.
pub(crate) fn build_advice(args: &CommonArgs, base: &Path, hosts: &[InventoryHost]) -> CommandFormatter {
    let files: Vec<String> = args.inventory.iter().chain(&args.files).map(|file| file.display().to_string()).collect();
    let config = args.ssh_config.as_ref().map(|file| file.display().to_string());
    let flags = config.iter().flat_map(|file| ["-F", file]).chain(args.set.iter().flat_map(|set| ["--set", set]));
    let flags: Vec<String> = flags.map(str::to_owned).collect();
    let base = base.display().to_string();
    let own = |host: &InventoryHost| {
        config.as_ref().filter(|_| host.ssh.config_file.is_none()).map_or_else(String::new, |file| format!("-F {} ", quote(file)))
    };
    let hosts = hosts.iter().map(|host| (host.name.clone(), format!("{}{}", own(host), host.ssh_args(&base))));
    CommandFormatter::new(&files, &flags, hosts.collect())
}

/// The inventory files of a command, read.
///
/// # Errors
/// A file that cannot be read, named with what to do.
pub(crate) fn read_inventory_files(args: &CommonArgs) -> Result<(Vec<InventorySource>, PathBuf), CliError> {
    let mut files: Vec<PathBuf> = args.inventory.iter().chain(&args.files).cloned().collect();
    if files.is_empty() {
        files = std::env::var_os("ORCHESTRATE_INVENTORY").map(|v| std::env::split_paths(&v).collect()).unwrap_or_default();
    }
    if files.is_empty() {
        files.push(PathBuf::from("inventory.yaml"));
    }
    let mut read = Vec::new();
    for file in &files {
        let name = file.display().to_string();
        match std::fs::read_to_string(file) {
            Ok(text) => read.push(InventorySource { name, text }),
            Err(error) => {
                let hint = if error.kind() == std::io::ErrorKind::NotFound {
                    "\n    help: give the inventory as the first argument, with -i, in $ORCHESTRATE_INVENTORY, or as ./inventory.yaml; configs/ holds examples"
                } else {
                    ""
                };
                return Err(CliError::Usage(format!("{name}: cannot be read: {error}{hint}")));
            }
        }
    }
    let base = files.first().and_then(|f| f.parent()).map_or_else(|| PathBuf::from("."), Path::to_owned);
    let base = std::path::absolute(if base.as_os_str().is_empty() { Path::new(".") } else { &base }).unwrap_or(base);
    Ok((read, base))
}

/// A user's rules, read.
///
/// # Errors
/// A file that cannot be read, or what is wrong with it.
pub(crate) fn load_diagnosis_rules(wanted: Option<DiagnosisRuleSource>, base: &Path) -> Result<Option<Vec<DiagnosisRule>>, CliError> {
    let name = match wanted {
        None => return Ok(None),
        Some(DiagnosisRuleSource::Inline(rules)) => return Ok(Some(rules)),
        Some(DiagnosisRuleSource::File(name)) => name,
    };
    let cannot =
        |error| CliError::Usage(format!("diagnosis: {name}: cannot be read: {error}\n    help: the path is relative to the inventory"));
    let text = std::fs::read_to_string(base.join(&name)).map_err(cannot)?;
    Ok(Some(crate::inventory::diagnosis_rules::read_rules(&InventorySource { name, text })?))
}

/// The values of the secrets that the inventory names.
///
/// # Errors
/// Every name that is not in the environment.
pub(super) fn read_secrets(names: &[String]) -> Result<Vec<(String, String)>, WorkflowError> {
    let mut found = Vec::new();
    let mut missing = Vec::new();
    for name in names {
        match std::env::var(name) {
            Ok(value) => found.push((name.clone(), value)),
            Err(_) => missing.push(name.as_str()),
        }
    }
    if missing.is_empty() {
        return Ok(found);
    }
    Err(WorkflowError::Usage(format!(
        "secrets: {} not set in this environment\n    help: export {}, or take the names out of `secrets`",
        missing.join(", "),
        missing.first().copied().unwrap_or_default()
    )))
}
