//! `shell`: opens a shell in the run's container or on the bare host, with the run's environment; for a rank also with its variables.

use std::collections::BTreeMap;

use crate::cli::args::{ProgressMode, ShellArgs};
use crate::cli::exit::{CliError, as_ssh_exit};
use crate::cli::interactive;
use crate::cli::interactive_end::InteractiveEnd;
use crate::cli::local_env::{print_stderr, user_lang};
use crate::cli::open_session::{LoadMode, listen, load_inventory, open_session};
use crate::cli::progress_output::OutputOptions;
use crate::cli::shell_target::{ShellTarget, find_rank_host, parse_target};
use crate::cli::unreachable::print_unreachable;
use crate::diagnose::advice_formatter::AdviceFormatter;
use crate::event::Outcome;
use crate::lifecycle::session::Session;
use crate::lifecycle::stop_controller::StopController;
use crate::lifecycle::stop_ladder::InterruptPolicy;
use crate::plan::action::Issue;
use crate::plan::facts::HostFacts;
use crate::plan::host_context::HostContext;
use crate::plan::shell_command::ExecRequest;
use crate::remote::RemoteError;
use crate::report::style::{TextStyle, Tone};

pub(crate) async fn run(args: &ShellArgs) -> Result<Outcome, CliError> {
    let target = args.target();
    if !args.names_inventory() && [".yaml", ".yml"].iter().any(|ending| target.ends_with(ending)) {
        let command = AdviceFormatter::new(&[target.to_owned()], &[], BTreeMap::new()).format_command("shell", "0");
        let text = format!("`{target}` is an inventory: name a host or a rank after it, for example `{command}`");
        return Err(CliError::Usage(text));
    }
    let common = args.common_args();
    let (mut inventory, base) = load_inventory(&common, LoadMode::ConnectionOnly)?;
    let names: Vec<String> = inventory.hosts.iter().map(|host| host.name.clone()).collect();
    let target = parse_target(target, &names).map_err(CliError::Usage)?;
    if let ShellTarget::Host(name) = &target {
        inventory.limit_hosts(name).map_err(|problem| CliError::Inventory(vec![problem]))?;
    }
    let session = open_session("shell", &common, (inventory, base), OutputOptions::progress_only(ProgressMode::Quiet))?;
    // Until the session on the host is open; then `interactive` decides what a signal does.
    let signals = listen(InterruptPolicy::Cancel)?;
    let answers = match signals.run_until_stopped(session.gather_facts(None)).await {
        Ok(answers) => answers,
        Err(outcome) => return Ok(session.disconnect(&signals, outcome).await),
    };
    let found = match &target {
        ShellTarget::Host(_) => answers.first().and_then(|answer| answer.as_ref().ok()).map(|facts| (0, facts)),
        ShellTarget::Rank(rank) => find_rank_host(*rank, &session.host_names(), &answers),
    };
    let outcome = match found {
        Some((host, facts)) => {
            let rank = if let ShellTarget::Rank(rank) = target { Some(rank) } else { None };
            open_shell(&session, &signals, (host, facts, rank), args).await
        }
        None => Ok(report_no_target(&session, &target, &answers)),
    };
    match session.disconnect(&signals, Outcome::Ok).await {
        signal @ Outcome::Signal(_) if outcome.is_ok() => Ok(signal),
        _ => outcome.and_then(as_ssh_exit),
    }
}

fn print_error(style: TextStyle, text: &str) {
    let lang = user_lang();
    print_stderr(&format!("{}{}{}", style.paint(Tone::Bad, lang.tr("error")), lang.colon(), lang.message(text)));
}

/// Prints why there is no host for the shell.
fn report_no_target(session: &Session, target: &ShellTarget, answers: &[Result<HostFacts, RemoteError>]) -> Outcome {
    let style = session.reporter.style();
    let names = session.host_names();
    let unreachable: Vec<(String, String, String)> = names
        .into_iter()
        .zip(answers)
        .filter_map(|(name, answer)| answer.as_ref().err().map(|error| (name, error.to_string(), error.hint().to_owned())))
        .collect();
    let is_unreachable = !unreachable.is_empty();
    print_unreachable(session, unreachable);
    if let ShellTarget::Rank(rank) = target {
        let record = answers.iter().flatten().find_map(HostFacts::run_record);
        let ps = session.suggest_command("ps", "");
        let mut help = format!("`{ps}` lists the ranks of each host; a host name works as well");
        if record.is_none() && !is_unreachable {
            help = format!("`{}` launches one; a host name works without a run", session.suggest_command("up", ""));
        }
        print_error(
            style,
            &match record {
                Some(record) if rank < &record.world_size => format!("the host of rank {rank} did not answer"),
                Some(record) => format!("run {} has no rank {rank}: it has ranks 0-{}", record.run_id, record.world_size.saturating_sub(1)),
                None if is_unreachable => format!("no run of {} is known to the hosts that answered", session.inventory.name),
                None => format!("no run of {} is on any host", session.inventory.name),
            },
        );
        print_stderr(&format!("    help: {help}"));
    }
    if is_unreachable { Outcome::Unreachable } else { Outcome::Refused }
}

async fn open_shell(
    session: &Session,
    signals: &StopController,
    (host, facts, rank): (usize, &HostFacts, Option<u32>),
    args: &ShellArgs,
) -> Result<Outcome, CliError> {
    let (Some(inventory_host), Some(connection)) = (session.inventory.hosts.get(host), session.engine.connections().get(host)) else {
        return Ok(Outcome::Unreachable);
    };
    let terminal = interactive::local_pty_spec();
    let context = HostContext::from_inventory(&session.inventory, inventory_host, &facts.run_dir);
    let request = ExecRequest::new(context, facts, rank, &args.command, terminal.as_ref().map(|terminal| terminal.term.as_str()));
    let style = session.reporter.style();
    let sanitizer = session.reporter.sanitizer();
    let command = match request.build_command() {
        Ok(command) => command,
        Err(Issue { message, hint }) => {
            print_error(style, &sanitizer.sanitize_line(&message));
            print_stderr(&format!("    help: {}", session.reporter.advice().complete_commands(&sanitizer.sanitize_line(&hint))));
            return Ok(Outcome::Refused);
        }
    };
    let in_terminal = terminal.is_some();
    if in_terminal && args.command.is_empty() {
        print_stderr(
            &style.paint(Tone::Dim, &format!("{}; `exit` leaves, `~.` disconnects", sanitizer.sanitize_line(&request.describe_target()))),
        );
    }
    let opened = async { connection.get_or_connect().await?.open_interactive(&command, terminal).await };
    let opened = match signals.run_until_stopped(opened).await {
        Ok(opened) => opened,
        Err(outcome) => return Ok(outcome),
    };
    let end = match opened {
        Ok(channel) => interactive::run(channel, in_terminal).await.map_err(anyhow::Error::from)?,
        Err(error) => InteractiveEnd::ConnectionLost(error),
    };
    match end {
        InteractiveEnd::Exited(code) => Err(CliError::RemoteExit(u8::try_from(code).unwrap_or(255))),
        InteractiveEnd::OutputFailed(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(Outcome::Ok),
        InteractiveEnd::OutputFailed(error) => {
            print_error(style, &format!("standard output: {error}"));
            Ok(Outcome::Failed)
        }
        InteractiveEnd::Escaped => {
            print_stderr(&format!("{}: disconnected; the remote process got SIGHUP", sanitizer.sanitize_line(&inventory_host.name)));
            Ok(Outcome::Signal(1))
        }
        InteractiveEnd::Signal(number) => Ok(Outcome::Signal(number)),
        InteractiveEnd::ConnectionLost(error) => {
            print_unreachable(session, vec![(inventory_host.name.clone(), error.to_string(), error.hint().to_owned())]);
            Ok(if matches!(error, RemoteError::Refused { .. }) { Outcome::Refused } else { Outcome::Unreachable })
        }
    }
}
