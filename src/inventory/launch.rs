//! The launch block: which launcher, which command for which host, and how the ranks start and stop.

use std::time::Duration;

use super::errors::InventoryErrors;
use super::eval::{DEFAULT_MASTER_PORT, Evaluator};
use super::problem::{Verdict, require};
use super::template::{self, TemplatePiece};
use super::yaml_tree::{SourceLocation, YamlKind, YamlNode, shorten};
use super::{GpuVisibility, LaunchCommand, LaunchSettings, Launcher, StartGate, StartOrder, reserved_flags};
use crate::text::shell_split;
use crate::text::shell_split::CommandFragment;

/// `launch.python`; launchers are then started as programs, not as modules of it.
pub(crate) const DEFAULT_PYTHON: &str = "python3";
/// The most times that a launcher may start its workers again.
const MAX_RESTARTS_LIMIT: u32 = 1000;

/// The block's own settings; each host has its own command.
pub(super) fn parse_launch(evaluator: &Evaluator<'_>, node: &YamlNode, errors: &mut InventoryErrors) -> LaunchSettings {
    let read = |key: &str| node.get(key).map(|node| evaluator.evaluate(node, None));
    let launcher = Launcher::parse(read("with").as_ref(), read("rendezvous").as_ref(), errors);
    let start = errors.choose(read("start").as_ref(), &StartOrder::WORDS, StartOrder::MasterFirst);
    let gate = if launcher == Launcher::Script { StartGate::MasterStarted } else { StartGate::MasterPort };
    let hosts = u32::try_from(evaluator.inputs().hosts.len()).unwrap_or(u32::MAX);
    LaunchSettings {
        launcher,
        master_port: read("master_port").map_or(Some(DEFAULT_MASTER_PORT), |node| parse_master_port(evaluator, &node, errors)),
        launcher_args: read("args").map(|node| reserved_flags::parse_launcher_args(launcher, &node, errors)).unwrap_or_default(),
        setup: read("setup").and_then(|node| errors.validated_text(&node, validate_setup)),
        python: read("python").and_then(|node| errors.validated_text(&node, validate_python)).unwrap_or_else(|| DEFAULT_PYTHON.to_owned()),
        gpu_visibility: parse_gpu_visibility(launcher, read("gpu_visibility").as_ref(), errors),
        max_restarts: parse_elastic_number(launcher, read("max_restarts").as_ref(), (0, MAX_RESTARTS_LIMIT), errors).unwrap_or(0),
        min_nodes: parse_elastic_number(launcher, read("min_nodes").as_ref(), (1, hosts), errors),
        start,
        gate: parse_gate(read("gate").as_ref(), start, errors).unwrap_or(gate),
        master_timeout: read("master_timeout").and_then(|node| errors.read_duration(&node)).unwrap_or(Duration::from_secs(300)),
        ready_pattern: read("ready_when").and_then(|node| errors.validated_text(&node, validate_regex)),
        stop_grace: read("stop_grace").and_then(|node| errors.read_duration(&node)).unwrap_or(Duration::from_secs(60)),
    }
}

/// The substitute for `launch` in an inventory that has only tasks: it needs no interpreter and no port.
pub(super) fn no_launch(evaluator: &Evaluator<'_>, errors: &mut InventoryErrors) -> LaunchSettings {
    let nothing = YamlNode::map(evaluator.inputs().tree.location.clone(), Vec::new());
    LaunchSettings {
        launcher: Launcher::Script,
        master_port: evaluator.inputs().runtime.master_port,
        gate: StartGate::MasterStarted,
        ..parse_launch(evaluator, &nothing, errors)
    }
}

fn parse_gpu_visibility(launcher: Launcher, node: Option<&YamlNode>, errors: &mut InventoryErrors) -> GpuVisibility {
    let Some(node) = node else { return GpuVisibility::All };
    if launcher != Launcher::Processes {
        errors.report(&node.location, "only `with: processes` can give each process its own GPU", "remove it: LOCAL_RANK selects the GPU");
    }
    errors.choose(Some(node), &GpuVisibility::WORDS, GpuVisibility::All)
}

/// What only torchrun with c10d can do: begin with fewer hosts, start workers again.
fn parse_elastic_number(
    launcher: Launcher,
    node: Option<&YamlNode>,
    (least, most): (u32, u32),
    errors: &mut InventoryErrors,
) -> Option<u32> {
    let node = node?;
    let number = errors.read_number(node, least, most);
    if !launcher.has_dynamic_ranks() && number != Some(0) {
        let message = "only torchrun with rendezvous: c10d can restart workers or start with fewer hosts";
        errors.report(
            &node.location,
            message,
            "set launch.rendezvous: c10d, or remove it: with static ranks one failed worker ends the gang",
        );
    }
    number
}

fn parse_master_port(evaluator: &Evaluator<'_>, node: &YamlNode, errors: &mut InventoryErrors) -> Option<u16> {
    if node.as_text() == Some("auto") {
        return evaluator.inputs().runtime.master_port;
    }
    errors.read_port(node)
}

fn validate_setup(text: &str) -> Verdict {
    require(!text.trim().is_empty(), "the setup is empty", "remove the key")
}

fn parse_gate(node: Option<&YamlNode>, start: StartOrder, errors: &mut InventoryErrors) -> Option<StartGate> {
    let node = node?;
    let gate = errors.read_choice(node, &StartGate::WORDS)?;
    if start == StartOrder::Together && gate != StartGate::None {
        errors.report(&node.location, "gate has no effect with start: together", "remove one of the two");
    }
    Some(gate)
}

fn validate_python(text: &str) -> Verdict {
    let fine = !text.is_empty() && !text.starts_with('-') && !text.contains(char::is_whitespace);
    let hint = "write one program, for example python3 or /opt/venv/bin/python";
    require(fine, format!("`{}` is not an interpreter", shorten(text)), hint)
}

pub(super) fn validate_regex(text: &str) -> Verdict {
    if text.is_empty() {
        return Err(("an empty pattern matches every line".to_owned(), "remove the key".to_owned()));
    }
    match regex::RegexBuilder::new(text).size_limit(1 << 20).build() {
        Ok(_) => Ok(()),
        Err(error) => {
            let hint = match error {
                regex::Error::CompiledTooBig(_) => "use smaller repetitions",
                _ => "write \\( for a literal parenthesis, \\. for a literal dot",
            };
            let text = error.to_string();
            let why = text.lines().last().unwrap_or_default().trim_start_matches("error: ");
            Err((format!("not a regular expression: {why}"), hint.to_owned()))
        }
    }
}

/// What one host runs.
pub(super) fn parse_launch_command(
    evaluator: &Evaluator<'_>,
    launch: &YamlNode,
    host: usize,
    errors: &mut InventoryErrors,
) -> LaunchCommand {
    let nothing = LaunchCommand::Argv(Vec::new());
    match (launch.get("command"), launch.get("shell")) {
        (Some(_), Some(shell)) => {
            errors.report(&shell.location, "`command` and `shell` are both given", "keep one of them");
            nothing
        }
        (None, None) => {
            errors.report(&launch.location, "`command` is missing", "for example [train.py, --lr, \"1e-3\"]");
            nothing
        }
        (Some(command), None) => LaunchCommand::Argv(parse_argv(evaluator, command, host, errors)),
        (None, Some(shell)) => {
            if !matches!(evaluator.launcher(), Launcher::Script | Launcher::Processes) {
                let message = "only `with: script` and `with: processes` support shell";
                errors.report(&shell.location, message, "write the training script and its arguments as `command`");
            }
            let text = errors.read_text(&evaluator.evaluate(shell, Some(host))).unwrap_or_default();
            if text.trim().is_empty() {
                errors.report(&shell.location, "empty script", "write the lines for each host to run");
            }
            LaunchCommand::Shell(text)
        }
    }
}

fn parse_argv(evaluator: &Evaluator<'_>, command: &YamlNode, host: usize, errors: &mut InventoryErrors) -> Vec<String> {
    let before = errors.problems.len();
    let words = match &command.kind {
        YamlKind::Scalar { text, .. } => split_command_line(evaluator, text, command, host, errors),
        YamlKind::List(items) => items.iter().flat_map(|item| list_item_words(evaluator, item, host, errors)).collect(),
        YamlKind::Map(_) | YamlKind::Unknown(_) => {
            errors.report(&command.location, format!("expected a command, found {}", command.describe()), "write a list, or one line");
            return Vec::new();
        }
    };
    if words.is_empty() && errors.problems.len() == before && !command.is_unknown() {
        errors.report(&command.location, "empty command", "for example [train.py, --lr, \"1e-3\"]");
    }
    reserved_flags::check_command(evaluator.launcher(), &words, command, errors);
    words
}

/// A command written as one line.
fn split_command_line(evaluator: &Evaluator<'_>, text: &str, command: &YamlNode, host: usize, errors: &mut InventoryErrors) -> Vec<String> {
    let pieces = match template::split_pieces(text) {
        Ok(Some(pieces)) => pieces,
        Ok(None) => vec![TemplatePiece::Text(text.to_owned())],
        Err(_) => {
            // The evaluation says what is wrong.
            drop(evaluator.evaluate(command, Some(host)));
            return Vec::new();
        }
    };
    let parts: Vec<CommandFragment> = if let [TemplatePiece::Expression(_)] = pieces.as_slice() {
        let node = evaluator.evaluate(command, Some(host));
        match &node.kind {
            YamlKind::List(items) => return items.iter().filter_map(|item| errors.read_text(item)).collect(),
            YamlKind::Unknown(text) => vec![CommandFragment::Literal(text.clone())],
            YamlKind::Scalar { .. } | YamlKind::Map(_) => errors.read_text(&node).map(CommandFragment::Source).into_iter().collect(),
        }
    } else {
        pieces.iter().map(|piece| command_fragment(evaluator, piece, &command.location, host)).collect()
    };
    shell_split::split_words(&parts).unwrap_or_else(|(message, hint)| {
        errors.report(&command.location, message, hint);
        Vec::new()
    })
}

fn command_fragment(evaluator: &Evaluator<'_>, piece: &TemplatePiece, location: &SourceLocation, host: usize) -> CommandFragment {
    match piece {
        TemplatePiece::Text(text) => CommandFragment::Source(text.clone()),
        TemplatePiece::Expression(_) => CommandFragment::Literal(evaluator.render_piece(piece, location, Some(host)).0),
    }
}

/// One word of a list; an expression that gives a list gives all its words.
fn list_item_words(evaluator: &Evaluator<'_>, item: &YamlNode, host: usize, errors: &mut InventoryErrors) -> Vec<String> {
    let written_list = matches!(item.kind, YamlKind::List(_));
    let node = evaluator.evaluate(item, Some(host));
    match &node.kind {
        YamlKind::List(items) if !written_list => items.iter().filter_map(|item| errors.read_text(item)).collect(),
        _ => errors.read_text(&node).into_iter().collect(),
    }
}
