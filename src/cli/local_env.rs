#![expect(clippy::disallowed_methods, reason = "the laptop's environment and files are read here")]
//! The laptop's environment: directories, user, variables, terminal, prompts.

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;

use crate::cli::args::{ColorChoice, CommonArgs, DashboardArgs, Language};
use crate::cli::dashboard_config;
use crate::cli::exit::CliError;
use crate::cli::laptop_id;
pub(crate) use crate::cli::printing::{
    print_json, print_stderr, print_stdout, print_untranslated, set_user_lang, terminal_columns, user_lang, wrap_to_terminal,
};
use crate::diagnose::advice_formatter::AdviceFormatter;
use crate::engine::lock::LockIdentity;
use crate::inventory::{Inventory, InventoryHost};
use crate::lifecycle::operator::{Console, run_in_thread};
use crate::lifecycle::random::random_hex;
use crate::plan::protocol::run_record::short_hash;
use crate::remote::{SshSettings, UserPrompt};
use crate::report::safe_output;
use crate::text::shell_quote::quote;
use crate::text::translation::Lang;
use crate::tui::settings::{DashboardSettings as Dashboard, MouseMode};
use crate::tui::theme::{ColorScheme, Theme};

/// Open files needed beside one per host: the minimum, and what 64 parallel handshakes (keys, agent, known_hosts), logs and the journal may
/// use. A ProxyCommand needs a second file for its host.
const MIN_RESERVED_FILES: usize = 64;
const RESERVED_FILES: usize = 256;

#[derive(Debug, Clone)]
pub(crate) struct LocalEnv {
    pub home: PathBuf,
    pub user: String,
    pub hostname: String,
    /// `$XDG_STATE_HOME/orchestrate`.
    pub state_dir: PathBuf,
}

impl LocalEnv {
    /// # Errors
    /// No home directory.
    pub(crate) fn read() -> anyhow::Result<LocalEnv> {
        let home = std::env::home_dir().filter(|h| !h.as_os_str().is_empty()).context("no home directory: set HOME")?;
        let state_home = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|p| p.is_absolute());
        let user = std::env::var("USER").or_else(|_| std::env::var("LOGNAME")).unwrap_or_else(|_| "root".to_owned());
        let hostname = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let state_dir = state_home.unwrap_or_else(|| home.join(".local/state")).join("orchestrate");
        Ok(LocalEnv { home, user, hostname, state_dir })
    }

    /// Identifies this process to other operators, in locks on the hosts.
    pub(crate) fn lock_identity(&self) -> LockIdentity {
        let plain = |s: &str| s.replace([':', '\n', ' ', '/'], "-");
        LockIdentity {
            token: random_hex(8),
            owner: format!("{}@{}", plain(&self.user), plain(&self.hostname)),
            // Machines that share a home directory share the id, so the hostname is part of the hash.
            local_machine_id: short_hash(&format!("{} {}", laptop_id::laptop_id(&self.state_dir), self.hostname)),
            pid: std::process::id(),
            is_process_alive: |pid| {
                i32::try_from(pid)
                    .ok()
                    .and_then(rustix::process::Pid::from_raw)
                    .is_some_and(|p| !matches!(rustix::process::test_kill_process(p), Err(rustix::io::Errno::SRCH)))
            },
        }
    }

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

/// Raises the limit of open files for connections to `hosts` hosts, as far as the system allows.
///
/// # Errors
/// The system allows fewer than the minimum.
pub(crate) fn raise_nofile_limit(hosts: usize) -> Result<(), String> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let number = |files: usize| u64::try_from(files).unwrap_or(u64::MAX);
    let (minimum, wanted) =
        (number(hosts.saturating_add(MIN_RESERVED_FILES)), number(hosts.saturating_mul(2).saturating_add(RESERVED_FILES)));
    let limit = getrlimit(Resource::Nofile);
    let target = limit.maximum.map_or(wanted, |hard| hard.min(wanted));
    let Some(current) = limit.current.filter(|current| *current < target) else { return Ok(()) };
    let raised = setrlimit(Resource::Nofile, Rlimit { current: Some(target), maximum: limit.maximum });
    if let Err(error) = &raised {
        tracing::debug!(%error, target, "could not raise the limit of open files");
    }
    let allowed = if raised.is_ok() { target } else { current };
    if allowed >= minimum {
        return Ok(());
    }
    Err(format!(
        "{hosts} hosts need {minimum} open files, but the system allows {allowed}: raise the limit (`ulimit -Hn {minimum}` as root), or select fewer hosts with --limit"
    ))
}

/// Disables core dumps: memory holds passwords and secrets. Child processes may enable their own.
pub(crate) fn disable_core_dumps() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Core);
    if let Err(error) = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: limit.maximum }) {
        tracing::debug!(%error, "could not disable core dumps");
    }
}

pub(super) struct TerminalConsole;

impl Console for TerminalConsole {
    fn print_stderr(&self, text: &str) {
        print_stderr(text);
    }

    fn print_finished(&self, line: &str) {
        print_untranslated(line);
    }

    fn print_stdout(&self, text: &str) {
        print_stdout(text);
    }

    fn can_ask(&self) -> bool {
        std::io::stdin().is_terminal()
    }

    fn confirm(&self, question: &str) -> bool {
        TtyPrompt
            .ask_line(&format!("{} [y/N]", user_lang().message(question)))
            .is_some_and(|answer| matches!(answer.trim(), "y" | "Y" | "yes"))
    }

    fn columns(&self) -> Option<u16> {
        terminal_columns()
    }
}

/// Prompts on the terminal; every answer is `None` without one.
struct TtyPrompt;

impl UserPrompt for TtyPrompt {
    fn ask_secret(&self, question: &str) -> Option<String> {
        if !std::io::stdin().is_terminal() {
            return None;
        }
        // The question may come from a server.
        let shown = safe_output::to_printable(&format!("{}: ", user_lang().message(question)));
        crate::tui::terminal::with_normal_screen(|| rpassword::prompt_password(shown.as_str()).ok())
    }

    fn ask_line(&self, question: &str) -> Option<String> {
        let mut answer = String::new();
        let shown = safe_output::to_printable(&format!("{}: ", user_lang().message(question)));
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

/// Writes output in a thread of its own, since a pipe without a reader blocks the write and signals must still work.
///
/// # Errors
/// The thread could not be started, or panicked.
pub(crate) async fn write_in_thread<T: Send + 'static>(write: impl FnOnce() -> T + Send + 'static) -> Result<T, CliError> {
    let written = run_in_thread("output", write).map_err(anyhow::Error::from)?;
    written.await.map_err(|error| CliError::Bug(error.into()))
}

/// Prints a script or a file on standard output: every byte into a pipe or a file, sanitized on a terminal.
pub(crate) fn print_raw_unless_tty(text: &str) {
    if std::io::stdout().is_terminal() {
        return print_stdout(text);
    }
    let mut out = std::io::stdout().lock();
    if out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_err() {
        tracing::debug!("standard output is closed");
    }
}

/// Masks the values of the inventory's secrets in all later output; returns every masked value.
pub(crate) fn hide_known_secrets(inventory: &Inventory) -> Vec<String> {
    safe_output::register_secrets(inventory.secret_variables().iter().filter_map(|name| std::env::var(name).ok()).collect())
}

/// The chosen language, else that of the environment: LC_ALL before LC_MESSAGES before LANG (POSIX, 8.2).
pub(crate) fn resolve_lang(choice: Option<Language>) -> Lang {
    let locale = || ["LC_ALL", "LC_MESSAGES", "LANG"].iter().find_map(|name| std::env::var(name).ok().filter(|value| !value.is_empty()));
    match choice {
        Some(Language::Zh) => Lang::Zh,
        Some(Language::En) => Lang::En,
        None if locale().is_some_and(|value| value.starts_with("zh")) => Lang::Zh,
        None => Lang::En,
    }
}

/// Whether to use colours on standard error.
pub(crate) fn use_color(when: ColorChoice) -> bool {
    use_color_on(&std::io::stderr(), when)
}

/// Whether to use colours on standard output.
pub(crate) fn use_color_on_stdout(when: ColorChoice) -> bool {
    use_color_on(&std::io::stdout(), when)
}

fn use_color_on(output: &impl IsTerminal, when: ColorChoice) -> bool {
    match when {
        ColorChoice::Always => true,
        ColorChoice::Never => false,
        ColorChoice::Auto => {
            output.is_terminal()
                && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty())
                && std::env::var_os("TERM").is_none_or(|t| t != "dumb")
        }
    }
}

/// Dashboard settings: flags first, then the user's configuration, then the terminal's defaults. `panic_advice` is printed if the dashboard
/// panics.
///
/// # Errors
/// No suitable terminal, or every problem in the configuration.
pub(crate) fn dashboard_settings(
    dashboard_args: &DashboardArgs,
    color: ColorChoice,
    panic_advice: Vec<String>,
) -> Result<Dashboard, CliError> {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let term = variable("TERM");
    crate::tui::terminal::check_terminal_support(term.as_deref()).map_err(CliError::Usage)?;
    let config = dashboard_config::read_config(&LocalEnv::read()?.home)?;
    let locale = variable("LC_ALL").or_else(|| variable("LC_CTYPE")).or_else(|| variable("LANG")).unwrap_or_default().to_ascii_lowercase();
    let is_linux_console = term.as_deref() == Some("linux");
    let unicode = (locale.contains("utf-8") || locale.contains("utf8")) && !is_linux_console;
    let ascii = dashboard_args.ascii || config.ascii.unwrap_or(!unicode);
    let requested = dashboard_args.theme.as_deref().map(dashboard_config::parse_color_scheme).transpose().map_err(CliError::Usage)?;
    let monochrome = match color {
        ColorChoice::Always => false,
        ColorChoice::Never => true,
        // --theme overrides NO_COLOR.
        ColorChoice::Auto => variable("NO_COLOR").is_some() && requested.is_none(),
    };
    let (scheme, query_background_color) = match requested.or(config.color_scheme).flatten() {
        _ if monochrome => (ColorScheme::Mono, false),
        Some(scheme) => (scheme, false),
        None if is_linux_console => (ColorScheme::Ansi16, false),
        None => (ColorScheme::Dark, true),
    };
    let mut theme = Theme::new(scheme, ascii);
    theme.graph_style = config.graph.filter(|_| !ascii).unwrap_or(theme.graph_style);
    Ok(Dashboard {
        theme,
        query_background_color,
        mouse_mode: config.mouse.unwrap_or(MouseMode::Auto),
        bindings: config.bindings,
        readonly: dashboard_args.readonly || config.readonly,
        panic_advice,
    })
}

/// Completes the commands that messages suggest, with the inventory and options of this command line.
pub(crate) fn build_advice(args: &CommonArgs, base: &Path, hosts: &[InventoryHost]) -> AdviceFormatter {
    let files: Vec<String> = args.inventory.iter().chain(&args.files).map(|file| file.display().to_string()).collect();
    let config = args.ssh_config.as_ref().map(|file| file.display().to_string());
    let flags: Vec<String> = config.iter().flat_map(|file| ["-F", file]).map(str::to_owned).collect();
    let base = base.display().to_string();
    let own_config = |host: &InventoryHost| {
        config.as_ref().filter(|_| host.ssh.config_file.is_none()).map_or_else(String::new, |file| format!("-F {} ", quote(file)))
    };
    let hosts = hosts.iter().map(|host| (host.name.clone(), format!("{}{}", own_config(host), host.ssh_args(&base))));
    AdviceFormatter::new(&files, &flags, hosts.collect())
        .with_overrides(&args.set)
        .with_selection(args.limit.clone(), args.task_flags.clone())
}

/// Returns when the reader of standard output, a pipe, has gone: `logs -f | head`.
pub(crate) async fn wait_for_closed_stdout() {
    while !is_stdout_closed() {
        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    }
}

/// Whether the reader of standard output, a pipe, has gone.
pub(crate) fn is_stdout_closed() -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let stdout = std::io::stdout();
    let mut ends = [PollFd::new(&stdout, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut ends, Some(&now)).is_ok_and(|ready| ready > 0)
        && ends.iter().any(|end| end.revents().intersects(PollFlags::ERR | PollFlags::HUP))
}
