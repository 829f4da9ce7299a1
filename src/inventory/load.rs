//! From texts to an [`Inventory`]: every file read, merged, and checked as a whole, so that all problems are reported at once.

use std::sync::Arc;

use super::errors::{InventoryErrors, is_absolute_or_home};
use super::eval::{EvalInputs, Evaluator, is_builtin_name};
use super::problem::{NO_HOSTS, Verdict, require};
use super::validated::{EvaluatedOnce, MergedInventory};
use super::yaml_tree::{SourceLocation, YamlEntry, YamlKind, YamlNode, YamlPath, shorten};
use super::{
    ContainerEngine, Inventory, InventoryHost, InventoryProblem, InventorySource, RuntimeValues, container, hosts, job, name_syntax,
    schema, yaml_parser,
};
use crate::text::host_patterns;

/// The location shown for values of `--set`.
const SET_OPTION: &str = "--set";
/// The default directory of runs on the hosts.
const DEFAULT_RUN_DIR: &str = "~/.orchestrate";

impl Inventory {
    /// Reads the inventory whole. Later sources override earlier ones key by key, hosts by name; `sets` (`launch.nproc_per_node=4`) override all.
    ///
    /// # Errors
    /// Everything that is wrong with the files, in their order.
    pub fn load(sources: &[InventorySource], sets: &[String]) -> Result<Inventory, Vec<InventoryProblem>> {
        let mut errors = InventoryErrors::default();
        let inventory = parse_and_merge(sources, sets, &mut errors).map(|read| {
            check_all_keys(&read, &mut errors);
            let inventory = build_inventory(read, &mut errors);
            let job = if inventory.hosts.is_empty() && inventory.slurm.is_some() {
                inventory.slurm_job().map(drop)
            } else {
                inventory.draft().map(drop)
            };
            if let Err(problems) = job {
                errors.problems.extend(problems);
            }
            inventory
        });
        errors.into_result(inventory)
    }

    /// Reads what reaching the hosts needs; the rest may be wrong.
    ///
    /// # Errors
    /// Everything that is wrong with that part, in the order of the files.
    pub fn load_connection(sources: &[InventorySource], sets: &[String]) -> Result<Inventory, Vec<InventoryProblem>> {
        let mut errors = InventoryErrors::default();
        let inventory = parse_and_merge(sources, sets, &mut errors).map(|read| {
            hosts::check_keys(&read.tree, &read.host_nodes, &mut errors);
            build_inventory(read, &mut errors)
        });
        errors.into_result(inventory)
    }

    /// Keeps the hosts that a `--limit` pattern means; ranks are renumbered in the same order.
    ///
    /// # Errors
    /// A part of the pattern means no host, or no host is left.
    pub fn limit_hosts(&mut self, pattern: &str) -> Result<(), InventoryProblem> {
        let names: Vec<String> = self.hosts.iter().map(|host| host.name.clone()).collect();
        let kept = host_patterns::select_hosts(pattern, &names)
            .map_err(|(message, hint)| SourceLocation::whole_file("--limit").problem(message, hint))?;
        let mut keep = kept.iter().copied();
        self.hosts.retain(|_| keep.next().unwrap_or(false));
        let mut keep = kept.iter().copied();
        self.merged.host_nodes.retain(|_| keep.next().unwrap_or(false));
        self.merged.evaluated = EvaluatedOnce::default();
        Ok(())
    }
}

/// Parses and merges; `None` if further checks would add no errors.
fn parse_and_merge(sources: &[InventorySource], sets: &[String], errors: &mut InventoryErrors) -> Option<MergedInventory> {
    let mut files = Vec::new();
    let mut whole = true;
    for source in sources {
        match yaml_parser::parse_document(&source.name, &source.text) {
            (Some(node), problems) if matches!(node.kind, YamlKind::Map(_)) => {
                errors.problems.extend(problems);
                files.push(node);
            }
            (Some(node), _) => {
                errors.report(&node.location, format!("expected the inventory's keys, found {}", node.describe()), "begin with `name: …`");
                whole = false;
            }
            (None, problems) => {
                errors.problems.extend(problems);
                whole = false;
            }
        }
    }
    for set in sets {
        match parse_set_option(set, &files) {
            Ok(node) => files.push(node),
            Err(problems) => {
                errors.problems.extend(problems);
                whole = false;
            }
        }
    }
    if !whole || files.is_empty() {
        return None;
    }
    let before = errors.problems.len();
    let (tree, mut members) = hosts::merge_files(files, errors);
    if members.is_empty() && tree.get("slurm").is_none() && errors.problems.len() == before {
        let location =
            sources.last().map_or_else(|| SourceLocation::whole_file(SET_OPTION), |source| SourceLocation::whole_file(&source.name));
        errors.report(&location.child("hosts"), NO_HOSTS, "for example hosts: [gpu01, gpu02]");
    }
    hosts::move_master_first(&tree, &mut members, errors);
    Some(MergedInventory::new(tree, members))
}

/// `a.b.c=value` as the equivalent file.
fn parse_set_option(set: &str, files: &[YamlNode]) -> Result<YamlNode, Vec<InventoryProblem>> {
    let whole = SourceLocation::whole_file(SET_OPTION);
    let wrong = |message: String| vec![whole.problem(message, "for example --set launch.nproc_per_node=4")];
    let Some((key, value)) = set.split_once('=') else { return Err(wrong(format!("`{}` has no =", shorten(set)))) };
    let keys: Vec<&str> = key.trim().split('.').collect();
    if keys.iter().any(|key| key.is_empty()) {
        return Err(wrong(format!("`{}` is not a key", shorten(key))));
    }
    if keys.len() > 16 {
        return Err(wrong("a key of more than 16 parts".to_owned()));
    }
    let at = |keys: &[&str]| SourceLocation {
        path: keys.iter().fold(YamlPath::from_file(SET_OPTION), |path, key| path.child_key(key)),
        ..whole.clone()
    };
    let value = if value.trim().is_empty() {
        YamlNode::scalar(at(&keys), value, false)
    } else {
        let (parsed, problems) = yaml_parser::parse_document(SET_OPTION, value);
        let here = at(&keys).path.to_string();
        let problems: Vec<InventoryProblem> =
            problems.into_iter().map(|problem| InventoryProblem { line: 0, column: 0, key_path: here.clone(), ..problem }).collect();
        let Some(parsed) = parsed.filter(|_| problems.is_empty()) else { return Err(problems) };
        set_source_location(parsed, &at(&keys))
    };
    let (value, keys) = split_host_setting(value, &keys, files).map_err(wrong)?;
    let full = keys.clone();
    Ok(keys.iter().enumerate().rev().fold(value, |value, (index, key)| {
        let (inner, outer) = (full.get(..=index).unwrap_or_default(), full.get(..index).unwrap_or_default());
        YamlNode::map(at(outer), vec![YamlEntry::new(key, at(inner), value)])
    }))
}

/// `hosts.gpu01.gpus=4` sets a key of one host.
fn split_host_setting<'k>(value: YamlNode, keys: &[&'k str], files: &[YamlNode]) -> Result<(YamlNode, Vec<&'k str>), String> {
    let ["hosts", rest @ ..] = keys else { return Ok((value, keys.to_vec())) };
    if rest.is_empty() {
        return Ok((value, keys.to_vec()));
    }
    let (_, members) = hosts::merge_files(files.to_vec(), &mut InventoryErrors::default());
    // A host's name may have dots in it: the longest one that fits is meant.
    let found = (1..rest.len()).rev().find_map(|n| {
        let (name, keys) = rest.split_at(n);
        let name = name.join(".");
        members.iter().any(|member| hosts::host_node_name(member) == name).then_some((name, keys))
    });
    let Some((name, inner)) = found else { return Err(format!("`{}` does not name a host and its key", shorten(&keys.join(".")))) };
    let source = value.location.clone();
    let value =
        inner.iter().rev().fold(value, |value, key| YamlNode::map(source.clone(), vec![YamlEntry::new(key, source.clone(), value)]));
    let named = YamlEntry::new("name", source.clone(), YamlNode::scalar(source.clone(), name, false));
    let host = YamlNode::map(source.clone(), vec![named]).merge(value);
    Ok((YamlNode { location: source, kind: YamlKind::List(vec![host]) }, vec!["hosts"]))
}

/// Gives everything in a value that came from `--set` the place of its key.
fn set_source_location(node: YamlNode, location: &SourceLocation) -> YamlNode {
    let kind = match node.kind {
        YamlKind::List(items) => {
            let at = |i| SourceLocation { path: location.path.child_index(i), ..location.clone() };
            YamlKind::List(items.into_iter().enumerate().map(|(i, item)| set_source_location(item, &at(i))).collect())
        }
        YamlKind::Map(entries) => YamlKind::Map(
            entries
                .into_iter()
                .map(|entry| {
                    let at = location.child(&entry.key);
                    YamlEntry { value: set_source_location(entry.value, &at), location: at, key: entry.key }
                })
                .collect(),
        ),
        kind @ (YamlKind::Scalar { .. } | YamlKind::Unknown(_)) => kind,
    };
    YamlNode { location: location.clone(), kind }
}

/// Compares every key with the known ones.
fn check_all_keys(merged: &MergedInventory, errors: &mut InventoryErrors) {
    errors.check_keys(&merged.tree, &schema::ROOT_SCHEMA);
    hosts::check_keys(&merged.tree, &merged.host_nodes, errors);
    container::check_keys(&merged.tree, &merged.host_nodes, errors);
    super::lint::check_keys(&merged.tree, errors);
    super::diagnosis_rules::parse_diagnosis_rule_source(&merged.tree, errors);
    super::prepare::check_keys(&merged.tree, errors);
    for block in [&schema::CHECKS_SCHEMA, &schema::ON_FAILURE_SCHEMA, &schema::LOGS_SCHEMA, &schema::SLURM_SCHEMA, &schema::LAUNCH_SCHEMA] {
        if let Some(node) = merged.tree.get(block.path) {
            errors.check_keys(node, block);
        }
    }
    if let Some(metrics) = merged.tree.get("metrics") {
        super::metric_patterns::parse_metrics(metrics, errors);
    }
    let Some(vars) = merged.tree.get("vars") else { return };
    if !matches!(vars.kind, YamlKind::Map(_)) {
        errors.report(&vars.location, format!("expected a mapping, found {}", vars.describe()), "for example { num_heads: 40 }");
    }
    const TEMPLATE_KEYWORDS: [&str; 16] =
        ["true", "false", "none", "not", "and", "or", "in", "is", "if", "else", "True", "False", "None", "loop", "self", "range"];
    for entry in vars.entries() {
        if is_builtin_name(&entry.key) || TEMPLATE_KEYWORDS.contains(&entry.key.as_str()) {
            errors.report(&entry.location, format!("`{}` is reserved in templates", entry.key), "rename the variable");
        } else if !crate::text::shell_quote::is_variable_name(&entry.key) {
            let message = format!("`{}` cannot be used in a template", shorten(&entry.key));
            errors.report(&entry.location, message, "use letters, digits and _, not beginning with a digit");
        }
    }
}

/// The half that every command needs.
fn build_inventory(merged: MergedInventory, errors: &mut InventoryErrors) -> Inventory {
    let known = RuntimeValues::default();
    let unread = |node| InventoryHost { name: hosts::host_node_name(node).to_owned(), ..InventoryHost::default() };
    let unread_hosts: Vec<InventoryHost> = merged.host_nodes.iter().map(unread).collect();
    let facts =
        EvalInputs { tree: &merged.tree, host_nodes: &merged.host_nodes, hosts: &unread_hosts, runtime: &known, nproc_override: None };
    let scope = Evaluator::new(facts);
    let name = parse_name(&scope, &merged.tree, errors);
    let found = hosts::parse_hosts(&scope, &merged.host_nodes, errors);
    let run_dir = match merged.tree.get("run_dir") {
        Some(node) => {
            let node = hosts::evaluate_before_connect(&scope, node, 0, errors);
            errors.validated_text(&node, validate_run_dir).unwrap_or_default()
        }
        None => DEFAULT_RUN_DIR.to_owned(),
    };
    let engine = merged.tree.get_map("container").map(|container| ContainerEngine {
        host: container.get("host").and_then(|node| {
            let node = hosts::evaluate_before_connect(&scope, node, 0, errors);
            container::parse_docker_host(&node, errors)
        }),
    });
    let slurm = super::slurm::parse_slurm(&scope, merged.host_nodes.len(), errors);
    errors.problems.extend(scope.take_problems());
    // Errors in them are reported where the whole file is checked.
    let metrics = merged
        .tree
        .get("metrics")
        .map(|node| super::metric_patterns::parse_metrics(node, &mut InventoryErrors::default()))
        .unwrap_or_default();
    Inventory { name, hosts: found, run_dir, engine, metrics, slurm, merged }
}

fn parse_name(evaluator: &Evaluator<'_>, tree: &YamlNode, errors: &mut InventoryErrors) -> String {
    let Some(node) = tree.get("name") else {
        errors.report(
            &tree.location.child("name"),
            "`name` is missing",
            "name the run, for example name: wan22 (used in container names and labels)",
        );
        return String::new();
    };
    let node = evaluator.evaluate(node, None);
    if let YamlKind::Unknown(text) = &node.kind
        && !text.is_empty()
    {
        errors.report(&node.location, format!("{text} is unknown until the hosts are connected"), "write the name itself, or use vars");
    }
    errors.validated_text(&node, name_syntax::validate_inventory_name).unwrap_or_default()
}

fn validate_run_dir(text: &str) -> Verdict {
    let odd = matches!(text, "/" | "~") || text.contains(|c: char| c.is_control() || c == ':' || c == ',');
    let fine = is_absolute_or_home(text) && !odd && text.split('/').all(|part| part != "..");
    let message = format!("`{}` is not allowed as run directory", shorten(text));
    require(fine, message, "write an absolute path or one below ~/, for example ~/.orchestrate")
}

impl Inventory {
    /// The job before any host has answered, evaluated once.
    ///
    /// # Errors
    /// As [`Inventory::job`].
    pub fn draft(&self) -> Result<&Arc<super::Job>, Vec<InventoryProblem>> {
        let draft = self.merged.evaluated.draft.get_or_init(|| self.job(&RuntimeValues::default()).map(Arc::new));
        draft.as_ref().map_err(Clone::clone)
    }

    /// The launch half, every template evaluated with what is known. A value that is not known yet prints as `<from HOST: what>`, and the
    /// constraints that need it wait.
    ///
    /// # Errors
    /// Everything that is wrong with these values, in the order of the files.
    pub fn job(&self, runtime: &RuntimeValues) -> Result<super::Job, Vec<InventoryProblem>> {
        let mut errors = InventoryErrors::default();
        let job = job::build_job(self, runtime, &mut errors);
        errors.into_result(job)
    }
}
