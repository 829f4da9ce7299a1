//! `--format`: JSON, or a Go template.

use serde_json::{Value, json};

use super::super::fake_program::ProgramOutput;
use super::super::go_template::GoTemplate;
use super::error::DockerError;

/// Prints values: as pretty JSON, or each through a template on a line of its own.
pub(super) fn format_values(values: &[Value], format: Option<&str>) -> Result<ProgramOutput, DockerError> {
    match format {
        None | Some("json") => {
            let text = serde_json::to_string_pretty(values).map_err(|e| DockerError::new(1, e.to_string()))?;
            Ok(ProgramOutput::ok(format!("{text}\n")))
        }
        Some(text) => {
            let template = parse_template(text)?;
            let mut out = String::new();
            for value in values {
                out.push_str(&render_template(&template, value)?);
                out.push('\n');
            }
            Ok(ProgramOutput::ok(out))
        }
    }
}

/// Prints one value on a line: as JSON, through a template, or without a format this text.
pub(super) fn format_object(value: &Value, format: Option<&str>, plain: String) -> Result<ProgramOutput, DockerError> {
    Ok(ProgramOutput::ok(match format {
        Some("json") => format!("{value}\n"),
        Some(text) => format!("{}\n", render_template(&parse_template(text)?, value)?),
        None => plain,
    }))
}

/// Docker prints an empty list as `null`.
pub(super) fn list_or_null(list: &[String]) -> Value {
    if list.is_empty() { Value::Null } else { json!(list) }
}

pub(super) fn parse_template(text: &str) -> Result<GoTemplate, DockerError> {
    GoTemplate::parse(text).map_err(|e| DockerError::new(64, format!("template parsing error: template: :1: {e}")))
}

pub(super) fn render_template(template: &GoTemplate, value: &Value) -> Result<String, DockerError> {
    template.render(value).map_err(|e| DockerError::new(1, format!("template parsing error: template: :1: executing \"\": {e}")))
}
