//! The names that templates and constraints may use, each found when it is first asked for: vars may refer to each other in any order.
//!
//! Knows what is given and what has to come from a host; knows nothing of the keys that contain templates.

mod nproc;
mod run_values;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};

use minijinja::{Environment, Value};

use super::errors::InventoryErrors;
use super::schema::suggest;
use super::template::{self, TemplatePiece, TemplateValue};
use super::yaml_tree::{SourceLocation, YamlEntry, YamlKind, YamlNode, shorten};
use super::{InventoryHost, RuntimeValues};

/// The most names that may refer to each other in a row.
const REFERENCE_DEPTH_LIMIT: usize = 32;
/// The default of `launch.master_port`.
pub(super) const DEFAULT_MASTER_PORT: u16 = 29500;
/// The most worker processes a host.
pub(super) const NPROC_LIMIT: u32 = 1024;

const RUN_FIELDS: [&str; 2] = ["id", "stamp"];
const MASTER_FIELDS: [&str; 3] = ["name", "address", "port"];
const HOST_FIELDS: [&str; 3] = ["name", "address", "rank"];
const BUILTIN_NAMES: [&str; 7] = ["name", "run", "world_size", "nnodes", "nproc_per_node", "master", "host"];

/// Whether a name of `vars` would hide one that is given.
pub(super) fn is_builtin_name(name: &str) -> bool {
    BUILTIN_NAMES.contains(&name)
}

/// What the names are made of.
#[derive(Clone)]
pub(super) struct EvalInputs<'a> {
    pub(super) tree: &'a YamlNode,
    /// Each host's own mapping, in rank order.
    pub(super) host_nodes: &'a [YamlNode],
    pub(super) hosts: &'a [InventoryHost],
    pub(super) runtime: &'a RuntimeValues,
    /// Tries a number of worker processes other than the one given.
    pub(super) nproc_override: Option<u32>,
}

/// Evaluates with these facts; problems gather in it, each once.
pub(super) struct Evaluator<'a> {
    inputs: EvalInputs<'a>,
    environment: Environment<'static>,
    cache: RefCell<BTreeMap<String, Option<TemplateValue>>>,
    depth: Cell<usize>,
    errors: RefCell<InventoryErrors>,
}

impl<'a> Evaluator<'a> {
    pub(super) fn new(inputs: EvalInputs<'a>) -> Self {
        let environment = template::new_environment();
        Evaluator { inputs, environment, cache: RefCell::default(), depth: Cell::new(0), errors: RefCell::default() }
    }

    /// Everything that was wrong with the templates so far.
    pub(super) fn take_problems(&self) -> Vec<super::InventoryProblem> {
        std::mem::take(&mut self.errors.borrow_mut().problems)
    }

    pub(super) fn inputs(&self) -> &EvalInputs<'a> {
        &self.inputs
    }

    fn report(&self, location: &SourceLocation, message: impl Into<String>, hint: impl Into<String>) -> TemplateValue {
        self.errors.borrow_mut().report(location, message, hint);
        TemplateValue::Invalid
    }

    /// The value with every template in it evaluated. `host`: whose value it is, where one host's values are asked for.
    pub(super) fn evaluate(&self, node: &YamlNode, host: Option<usize>) -> YamlNode {
        let kind = match &node.kind {
            YamlKind::List(items) => YamlKind::List(items.iter().map(|item| self.evaluate(item, host)).collect()),
            YamlKind::Map(entries) => YamlKind::Map(
                entries.iter().map(|entry| YamlEntry::new(&entry.key, entry.location.clone(), self.evaluate(&entry.value, host))).collect(),
            ),
            YamlKind::Unknown(text) => YamlKind::Unknown(text.clone()),
            YamlKind::Scalar { text, .. } => match template::split_pieces(text) {
                Ok(None) => return node.clone(),
                Ok(Some(pieces)) => return self.evaluate_pieces(&pieces, &node.location, host),
                Err(message) => {
                    self.report(&node.location, message, "write {{ '{{' }} for a literal {{");
                    YamlKind::Unknown(String::new())
                }
            },
        };
        YamlNode { location: node.location.clone(), kind }
    }

    fn evaluate_pieces(&self, pieces: &[TemplatePiece], location: &SourceLocation, host: Option<usize>) -> YamlNode {
        let unknown = |text: String| YamlNode { location: location.clone(), kind: YamlKind::Unknown(text) };
        if let [TemplatePiece::Expression(expression)] = pieces {
            return match self.evaluate_expression(expression, location, host) {
                TemplateValue::Known(value) => template::value_to_node(&value, location).unwrap_or_else(|why| {
                    self.report(location, format!("{{{{ {} }}}}: {why}", shorten(expression)), "");
                    unknown(String::new())
                }),
                TemplateValue::Unknown(text) => unknown(text),
                TemplateValue::Invalid => unknown(String::new()),
            };
        }
        let mut text = String::new();
        let mut all_known = true;
        for piece in pieces {
            let (part, known) = self.render_piece(piece, location, host);
            text.push_str(&part);
            all_known &= known;
        }
        if text.len() > super::yaml_parser::TEXT_LIMIT {
            self.report(location, "the template's result exceeds 1 MiB", "");
            return unknown(String::new());
        }
        if all_known { YamlNode::scalar(location.clone(), text, false) } else { unknown(text) }
    }

    /// A piece of a text, and whether it is known.
    pub(super) fn render_piece(&self, piece: &TemplatePiece, location: &SourceLocation, host: Option<usize>) -> (String, bool) {
        let expression = match piece {
            TemplatePiece::Text(text) => return (text.clone(), true),
            TemplatePiece::Expression(expression) => expression,
        };
        match self.evaluate_expression(expression, location, host) {
            TemplateValue::Known(value) => match template::value_to_text(&value) {
                Ok(text) => (text, true),
                Err(why) => {
                    self.report(location, format!("{{{{ {} }}}}: {why}", shorten(expression)), "");
                    (String::new(), false)
                }
            },
            TemplateValue::Unknown(text) => (text, false),
            TemplateValue::Invalid => (String::new(), false),
        }
    }

    /// What an expression comes to.
    pub(super) fn evaluate_expression(&self, expression: &str, location: &SourceLocation, host: Option<usize>) -> TemplateValue {
        let shown = shorten(expression);
        if expression.len() > template::EXPRESSION_LIMIT {
            let message = format!("an expression longer than {} bytes", template::EXPRESSION_LIMIT);
            return self.report(location, message, "split it into several vars");
        }
        let compiled = match self.environment.compile_expression(expression) {
            Ok(compiled) => compiled,
            Err(error) => {
                let hint = "write an expression like world_size // 2; write {{ '{{' }} for a literal {{";
                return self.report(location, format!("`{shown}` is not an expression: {}", template::describe_error(&error)), hint);
            }
        };
        let mut context = BTreeMap::new();
        let mut unknown = None;
        for (name, fields) in referenced_fields(&compiled.undeclared_variables(true)) {
            if self.environment.globals().any(|(global, _)| global == name) && !self.is_var(&name) {
                continue;
            }
            match self.lookup_name(&name, &fields, location, host) {
                TemplateValue::Known(value) => {
                    context.insert(name, value);
                }
                TemplateValue::Unknown(text) => unknown = unknown.or(Some(text)),
                TemplateValue::Invalid => return TemplateValue::Invalid,
            }
        }
        if let Some(text) = unknown {
            return TemplateValue::Unknown(text);
        }
        match compiled.eval(Value::from(context)) {
            Ok(value) if value.is_undefined() => self.report(location, format!("`{shown}` is not defined"), ""),
            // A text of the user's that looks like a variable of the script is none.
            Ok(value) if !self.inputs.runtime.is_symbolic() && value.as_str().is_some_and(|text| text.contains('\0')) => self.report(
                location,
                format!("{{{{ {shown} }}}}: its result contains a NUL character, which cannot be passed to a process"),
                "",
            ),
            Ok(value) => TemplateValue::Known(value),
            Err(error) => self.report(location, format!("`{shown}` cannot be evaluated: {}", template::describe_error(&error)), ""),
        }
    }

    fn is_var(&self, name: &str) -> bool {
        self.inputs.tree.get_path(&["vars"]).is_some_and(|vars| vars.entries().iter().any(|entry| entry.key == name))
    }

    /// One name; of a given group only the fields that are asked for.
    fn lookup_name(&self, name: &str, fields: &BTreeSet<String>, location: &SourceLocation, host: Option<usize>) -> TemplateValue {
        let all: &[&str] = match name {
            "run" => &RUN_FIELDS,
            "master" => &MASTER_FIELDS,
            "host" => &HOST_FIELDS,
            _ => return self.lookup_scalar(name, location),
        };
        if name == "host" && host.is_none() {
            return self.report(location, "`host` is not defined here", "only command, env, mounts and per-host values can use it");
        }
        let fields: Vec<&str> = if fields.is_empty() { all.to_vec() } else { fields.iter().map(String::as_str).collect() };
        let mut group = BTreeMap::new();
        for field in fields {
            if !all.contains(&field) {
                let hint = format!("there are {}", all.iter().map(|f| format!("{name}.{f}")).collect::<Vec<_>>().join(", "));
                return self.report(location, format!("`{name}.{field}` is not defined"), hint);
            }
            match self.lookup_field(name, field, host.unwrap_or(0), location) {
                TemplateValue::Known(value) => group.insert(field.to_owned(), value),
                other => return other,
            };
        }
        TemplateValue::Known(Value::from(group))
    }

    fn lookup_field(&self, group: &str, field: &str, host: usize, location: &SourceLocation) -> TemplateValue {
        let host = if group == "master" { 0 } else { host };
        let unknown_run = |text: &str| {
            if text.is_empty() { TemplateValue::Unknown(format!("<run.{field}>")) } else { TemplateValue::Known(Value::from(text)) }
        };
        match (group, field) {
            ("run", "id") => unknown_run(&self.inputs.runtime.run_id),
            ("run", _) => unknown_run(&self.inputs.runtime.run_stamp),
            (_, "rank") => TemplateValue::Known(Value::from(host)),
            (_, "port") => self.memoize("master.port", location, |scope| scope.master_port()),
            (_, "address") => {
                let known = self.inputs.runtime.fabric_addresses.get(host).and_then(Option::as_deref);
                match known.or_else(|| self.inputs.hosts.get(host)?.fabric_address.as_deref()) {
                    Some(address) => TemplateValue::Known(Value::from(address)),
                    None => TemplateValue::Unknown(self.host_placeholder(host, "fabric address")),
                }
            }
            _ => TemplateValue::Known(Value::from(self.host_name(host))),
        }
    }

    pub(super) fn host_name(&self, host: usize) -> &str {
        self.inputs.hosts.get(host).map_or("", |host| &host.name)
    }

    fn host_placeholder(&self, host: usize, what: &str) -> String {
        format!("<from {}: {what}>", self.host_name(host))
    }

    fn lookup_scalar(&self, name: &str, location: &SourceLocation) -> TemplateValue {
        match name {
            "nnodes" => TemplateValue::Known(Value::from(self.inputs.hosts.len())),
            "nproc_per_node" | "world_size" | "name" => self.memoize(name, location, |scope| match name {
                "name" => scope.inventory_name(),
                "world_size" => scope.world_size(),
                _ => scope.nproc_value(location),
            }),
            _ => self.lookup_variable(name, location),
        }
    }

    pub(super) fn lookup_variable(&self, name: &str, location: &SourceLocation) -> TemplateValue {
        let vars = self.inputs.tree.get_path(&["vars"]).map(YamlNode::entries).unwrap_or_default();
        let Some(entry) = vars.iter().find(|entry| entry.key == name) else {
            let names = vars.iter().map(|entry| entry.key.as_str()).chain(BUILTIN_NAMES);
            let otherwise = format!(
                "set it under vars; predefined are {}, run.id, run.stamp, master.name, master.address, master.port",
                BUILTIN_NAMES[..5].join(", ")
            );
            return self.report(location, format!("`{}` is not defined", shorten(name)), suggest(name, names, &otherwise));
        };
        self.memoize(name, location, |scope| {
            let node = scope.evaluate(&entry.value, None);
            match template::node_to_value(&node) {
                Ok(value) => TemplateValue::Known(value),
                Err(text) if text.is_empty() => TemplateValue::Invalid,
                Err(text) => TemplateValue::Unknown(text),
            }
        })
    }

    /// Finds a name's value once; a name that needs itself is wrong.
    fn memoize(&self, name: &str, location: &SourceLocation, find: impl FnOnce(&Self) -> TemplateValue) -> TemplateValue {
        match self.cache.borrow().get(name) {
            Some(Some(term)) => return term.clone(),
            Some(None) => {
                let circle =
                    self.cache.borrow().iter().filter(|(_, term)| term.is_none()).map(|(name, _)| format!("`{name}`")).collect::<Vec<_>>();
                return self.report(
                    location,
                    format!("`{name}` depends on itself: {} form a cycle", circle.join(", ")),
                    "set one of them to a fixed value",
                );
            }
            None => {}
        }
        if self.depth.get() >= REFERENCE_DEPTH_LIMIT {
            return self.report(location, format!("references are nested more than {REFERENCE_DEPTH_LIMIT} levels deep"), "");
        }
        self.cache.borrow_mut().insert(name.to_owned(), None);
        self.depth.set(self.depth.get() + 1);
        let term = find(self);
        self.depth.set(self.depth.get() - 1);
        self.cache.borrow_mut().insert(name.to_owned(), Some(term.clone()));
        term
    }
}

/// Names and the fields asked of them: `master.name` is `master` with `name`; `master` alone is all of it.
fn referenced_fields(undeclared: &std::collections::HashSet<String>) -> BTreeMap<String, BTreeSet<String>> {
    let mut names: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for full in undeclared {
        let (name, field) = full.split_once('.').map_or((full.as_str(), None), |(name, tail)| (name, tail.split('.').next()));
        names.entry(name.to_owned()).or_default().extend(field.map(str::to_owned));
    }
    for full in undeclared.iter().filter(|full| !full.contains('.')) {
        names.insert(full.clone(), BTreeSet::new());
    }
    names
}
