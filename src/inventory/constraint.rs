//! The user's constraints: checked with the values of the run, and when one fails, the numbers of processes with which all would hold.

use minijinja::value::ValueKind;

use super::errors::InventoryErrors;
use super::eval::{EvalInputs, Evaluator, NPROC_LIMIT};
use super::template::{self, TemplatePiece, TemplateValue};
use super::yaml_tree::{SourceLocation, YamlNode, shorten};

/// How many processes per host are tried if the number of GPUs is unknown.
const DEFAULT_MAX_NPROC: u32 = 8;
/// How many numbers a hint lists.
const HINT_LIMIT: usize = 6;

/// What came of one constraint.
enum ConstraintResult {
    Satisfied,
    Violated,
    /// Something in it is not known yet.
    Undetermined,
    /// It is wrong, and that was reported.
    Invalid,
}

/// Checks all constraints; those with unknown values wait for them.
pub(super) fn check_constraints(evaluator: &Evaluator<'_>, node: &YamlNode, errors: &mut InventoryErrors) {
    let expressions = collect_expressions(node, errors);
    let mut hint = None;
    for (expression, location) in &expressions {
        if matches!(evaluate_constraint(evaluator, expression, location, errors), ConstraintResult::Violated) {
            let hint = hint.get_or_insert_with(|| constraint_hint(evaluator, &expressions));
            errors.report(
                location,
                format!("the constraint `{}` does not hold{}", shorten(expression), describe_values(evaluator, expression, location)),
                hint.clone(),
            );
        }
    }
}

/// The constraints, each with its place.
fn collect_expressions<'a>(node: &'a YamlNode, errors: &mut InventoryErrors) -> Vec<(String, &'a SourceLocation)> {
    node.items_or_self().iter().filter_map(|item| Some((strip_braces(&errors.read_text(item)?), &item.location))).collect()
}

/// The expression alone, without surrounding braces.
fn strip_braces(text: &str) -> String {
    match template::split_pieces(text).ok().flatten().as_deref() {
        Some([TemplatePiece::Expression(expression)]) => expression.clone(),
        _ => text.to_owned(),
    }
}

fn evaluate_constraint(
    evaluator: &Evaluator<'_>,
    expression: &str,
    location: &SourceLocation,
    errors: &mut InventoryErrors,
) -> ConstraintResult {
    match evaluator.evaluate_expression(expression, location, None) {
        TemplateValue::Unknown(_) => ConstraintResult::Undetermined,
        TemplateValue::Invalid => ConstraintResult::Invalid,
        TemplateValue::Known(value) if value.kind() == ValueKind::Bool => {
            if value.is_true() {
                ConstraintResult::Satisfied
            } else {
                ConstraintResult::Violated
            }
        }
        TemplateValue::Known(value) => {
            let (shown, found) = (shorten(expression), shorten(&value.to_string()));
            let message = format!("the constraint `{shown}` evaluates to {found}, which is neither true nor false");
            errors.report(location, message, "write a comparison, for example num_heads % world_size == 0");
            ConstraintResult::Invalid
        }
    }
}

/// `: ulysses_size is 16, num_heads is 40`.
fn describe_values(evaluator: &Evaluator<'_>, expression: &str, location: &SourceLocation) -> String {
    let environment = template::new_environment();
    let Ok(compiled) = environment.compile_expression(expression) else { return String::new() };
    let mut names: Vec<String> = compiled.undeclared_variables(false).into_iter().collect();
    names.sort();
    let known: Vec<String> = names
        .iter()
        .filter_map(|name| match evaluator.evaluate_expression(name, location, None) {
            TemplateValue::Known(value) => Some(format!("{name} is {}", shorten(&value.to_string()))),
            TemplateValue::Unknown(_) | TemplateValue::Invalid => None,
        })
        .collect();
    if known.is_empty() { String::new() } else { format!(": {}", known.join(", ")) }
}

/// A way to satisfy every constraint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GangSize {
    /// How many of the hosts, from the first on.
    pub hosts: usize,
    /// `launch.nproc_per_node`.
    pub nproc: u32,
    /// GPUs of all given hosts that would stay idle; `None` if their number is unknown.
    pub idle_gpus: Option<u32>,
}

impl GangSize {
    /// Worker processes in all.
    pub fn world_size(self) -> u32 {
        self.nproc.saturating_mul(u32::try_from(self.hosts).unwrap_or(u32::MAX))
    }
}

impl super::Inventory {
    /// Every way to satisfy all constraints with these hosts, the one that uses most GPUs first, then the one with most hosts; and the
    /// constraints. Works where the constraints fail as the file stands.
    pub fn suggest_gang_sizes(&self, runtime: &super::RuntimeValues) -> (Vec<String>, Vec<GangSize>) {
        let scope = Evaluator::new(self.eval_inputs(runtime));
        let expressions =
            self.merged.tree.get("constraints").map(|node| collect_expressions(node, &mut InventoryErrors::default())).unwrap_or_default();
        let mut fits: Vec<GangSize> = (1..=self.hosts.len()).flat_map(|hosts| find_gang_sizes(&scope, &expressions, hosts)).collect();
        fits.sort_by_key(|fit| std::cmp::Reverse((fit.world_size(), fit.hosts)));
        (expressions.into_iter().map(|(text, _)| text).collect(), fits)
    }
}

/// The ways with just the first `hosts` hosts, those that use most GPUs first.
fn find_gang_sizes(evaluator: &Evaluator<'_>, expressions: &[(String, &SourceLocation)], hosts: usize) -> Vec<GangSize> {
    let all: Vec<Option<u32>> = (0..evaluator.inputs().hosts.len()).map(|host| evaluator.gpu_count(host)).collect();
    let given = all.iter().take(hosts).copied().flatten().filter(|gpus| *gpus > 0).min();
    let total: Option<u32> = all.iter().copied().sum::<Option<u32>>().filter(|total| *total > 0);
    let most = given.unwrap_or_else(|| evaluator.nproc_per_node().unwrap_or(0).max(DEFAULT_MAX_NPROC)).min(NPROC_LIMIT);
    let part = EvalInputs {
        host_nodes: evaluator.inputs().host_nodes.get(..hosts).unwrap_or_default(),
        hosts: evaluator.inputs().hosts.get(..hosts).unwrap_or_default(),
        ..evaluator.inputs().clone()
    };
    let fits = |nproc: &u32| {
        let trial = Evaluator::new(EvalInputs { nproc_override: Some(*nproc), ..part.clone() });
        let mut ignored = InventoryErrors::default();
        expressions.iter().all(|(expression, location)| {
            matches!(
                evaluate_constraint(&trial, expression, location, &mut ignored),
                ConstraintResult::Satisfied | ConstraintResult::Undetermined
            )
        })
    };
    let fit = |nproc: u32| {
        let fit = GangSize { hosts, nproc, idle_gpus: None };
        GangSize { idle_gpus: total.map(|total| total.saturating_sub(fit.world_size())), ..fit }
    };
    (1..=most).rev().filter(fits).map(fit).collect()
}

fn constraint_hint(evaluator: &Evaluator<'_>, expressions: &[(String, &SourceLocation)]) -> String {
    let hosts = evaluator.inputs().hosts.len();
    let fits = find_gang_sizes(evaluator, expressions, hosts);
    let on = |hosts: usize| if hosts == 1 { "on 1 host".to_owned() } else { format!("on {hosts} hosts") };
    let Some(best) = fits.first() else {
        let fewer = (1..hosts).rev().flat_map(|hosts| find_gang_sizes(evaluator, expressions, hosts)).max_by_key(|fit| fit.world_size());
        return match fewer {
            Some(fit) => {
                format!("no launch.nproc_per_node {} satisfies all constraints; {} {} does (--limit)", on(hosts), fit.nproc, on(fit.hosts))
            }
            None => format!("no launch.nproc_per_node {} satisfies all constraints: change the hosts or the vars", on(hosts)),
        };
    };
    let others: Vec<String> = fits.iter().take(HINT_LIMIT).skip(1).map(|fit| fit.nproc.to_string()).collect();
    let more = if fits.len() > HINT_LIMIT { ", …" } else { "" };
    let others = if others.is_empty() { String::new() } else { format!(" (or {}{more})", others.join(", ")) };
    let idle = best.idle_gpus.map(|idle| format!(": {} processes, {idle} GPUs idle", best.world_size())).unwrap_or_default();
    format!("launch.nproc_per_node {}{others} per host satisfies all constraints {}{idle}", best.nproc, on(hosts))
}
