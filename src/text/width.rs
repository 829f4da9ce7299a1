//! Wrapping and truncating text, by the columns that it takes on a terminal or by characters.

use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// At most `max_lines` lines of at most `width` columns, broken at spaces.
pub(crate) fn wrap_bounded(text: &str, width: usize, max_lines: usize) -> Vec<String> {
    let mut lines = wrap_text(text, width);
    if lines.len() > max_lines {
        lines.truncate(max_lines);
        if let Some(last) = lines.last_mut() {
            *last = truncate_text(&format!("{last} …"), width);
        }
    }
    lines
}

/// Lines of at most `width` columns, broken at spaces, before and after a wide character, and within a longer word.
pub(crate) fn wrap_text(text: &str, width: usize) -> Vec<String> {
    wrap_pieces(text, "", "", width, |word| split_at_wide(word).into_iter().flat_map(|piece| split_to_width(piece, width.max(1))).collect())
}

/// The pieces of a word between which a line may end: one wide character with the punctuation after it, or all up to the next one.
fn split_at_wide(word: &str) -> Vec<&str> {
    let wide = |c: char| c.width().unwrap_or(0) > 1;
    let (mut pieces, mut from, mut before) = (Vec::new(), 0, None);
    for (at, c) in word.char_indices() {
        // A line begins neither with closing punctuation nor after an opening bracket.
        let joined = "，。；：、？！）」】》”".contains(c) || before.is_some_and(|before| "（「【《“".contains(before));
        if before.is_some_and(|before| wide(c) || wide(before)) && !joined {
            pieces.push(&word[from..at]);
            from = at;
        }
        before = Some(c);
    }
    pieces.push(&word[from..]);
    pieces
}

/// A text in pieces of at most `width` columns.
pub(crate) fn split_to_width(text: &str, width: usize) -> Vec<&str> {
    let (mut found, mut from, mut used) = (Vec::new(), 0, 0);
    for (at, c) in text.char_indices() {
        let own = c.width().unwrap_or(0);
        if used + own > width && at > from {
            found.push(&text[from..at]);
            (from, used) = (at, 0);
        }
        used += own;
    }
    found.push(&text[from..]);
    found
}

/// The first `width` columns of a text, with `…` where something is missing.
pub(crate) fn truncate_text(text: &str, width: usize) -> String {
    let text = text.replace('\t', " ");
    if text.width() <= width {
        return text;
    }
    if width == 0 {
        return String::new();
    }
    let mut used = 0;
    let fits = |c: &char| {
        used += c.width().unwrap_or(0);
        used < width
    };
    let mut short: String = text.chars().take_while(fits).collect();
    short.push('…');
    short
}

/// Words on lines of at most `width` columns, the first behind `first`, the others behind `then`; a word that is longer than a line stays
/// whole, so that it can be copied. A line may end before and after a wide character.
pub(crate) fn wrap_with_indent(text: &str, first: &str, then: &str, width: usize) -> Vec<String> {
    wrap_pieces(text, first, then, width, split_at_wide)
}

/// `pieces`: those of a word between which a line may end.
fn wrap_pieces<'t>(text: &'t str, first: &str, then: &str, width: usize, pieces: impl Fn(&'t str) -> Vec<&'t str>) -> Vec<String> {
    let mut lines = Vec::new();
    let (mut line, mut indent) = (first.to_owned(), first);
    for (at, word) in text.split(' ').enumerate() {
        let mut gap = if at > 0 { " " } else { "" };
        for piece in pieces(word) {
            if line.len() > indent.len() && line.width() + gap.len() + piece.width() > width {
                lines.push(std::mem::replace(&mut line, then.to_owned()));
                indent = then;
            } else {
                line.push_str(gap);
            }
            line.push_str(piece);
            gap = "";
        }
    }
    lines.push(line);
    lines
}

/// Stands for a space where no line may end. A noncharacter, which no sanitized text has.
pub(crate) const JOINED: char = '\u{fdef}';

/// A message as [`wrap_with_indent`] does, with what is in backticks on one line, so that it can be pasted. A line with a command of this program
/// that is in no backticks stays whole.
pub(crate) fn wrap_message(text: &str, first: &str, then: &str, width: usize) -> Vec<String> {
    let parts: Vec<&str> = text.split('`').collect();
    let is_balanced = parts.len() % 2 == 1;
    if first.width() + text.width() <= width || parts.iter().step_by(2).any(|outside| outside.contains("orchestrate ")) {
        return vec![format!("{first}{text}")];
    }
    let join =
        |(at, part): (usize, &&str)| if at % 2 == 1 && is_balanced { part.replace(' ', &JOINED.to_string()) } else { (*part).to_owned() };
    let joined: Vec<String> = parts.iter().enumerate().map(join).collect();
    wrap_with_indent(&joined.join("`"), first, then, width).into_iter().map(|line| line.replace(JOINED, " ")).collect()
}

/// A message as [`wrap_message`] does; what follows is indented by four spaces more than it.
pub(crate) fn wrap_indented(line: &str, width: usize) -> Vec<String> {
    let message = line.trim_start_matches(' ');
    let indent = &line[..line.len() - message.len()];
    wrap_message(message, indent, &format!("{indent}    "), width)
}

/// A text with spaces after it, so that it takes at least `width` columns.
pub(crate) fn pad_end(text: &str, width: usize) -> String {
    format!("{text}{}", " ".repeat(width.saturating_sub(text.width())))
}

/// A text with spaces before it, so that it takes at least `width` columns.
pub(crate) fn pad_start(text: &str, width: usize) -> String {
    format!("{}{text}", " ".repeat(width.saturating_sub(text.width())))
}

/// At most the first `most` bytes of a text, up to the end of a character.
pub(crate) fn first_bytes(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    &text[..end]
}

/// The first characters of a text, with `…` where something is missing.
pub(crate) fn shorten_to_chars(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrap_keeps_commands_whole() {
        let long = "orchestrate exec a.yaml --limit gpu01 -- nvidia-smi; PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True";
        let lines = wrap_with_indent(long, "", "", 40);
        assert_eq!(lines.join(" "), long);
        assert_eq!(lines.last().map(String::as_str), Some("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"), "whole, to be pasted");
        assert!(wrap_text(long, 40).iter().all(|line| line.len() <= 40));
        assert_eq!(wrap_text(long, 40).concat().replace(' ', ""), long.replace(' ', ""));
        let chinese = "减小批大小;PYTORCH=1减少数据加载进程";
        assert_eq!(wrap_with_indent(chinese, "", "", 12), ["减小批大小", ";PYTORCH=1减", "少数据加载进", "程"]);
        assert_eq!(wrap_text("", 10), [""]);
    }

    #[test]
    fn chinese_is_aligned_and_wrapped_by_columns() {
        assert_eq!((pad_end("主机", 6), pad_start("失败", 7), pad_end("主机", 3)), ("主机  ".into(), "   失败".into(), "主机".into()));
        let lines = wrap_with_indent("日志写不下去时，rank 会退出", "  ", "    ", 14);
        assert_eq!(lines, ["  日志写不下去", "    时，rank", "    会退出"], "no line begins with a comma");
    }

    #[test]
    fn truncated_text_fits() {
        for (width, short) in [(0, ""), (1, "…"), (2, "…"), (3, "主…"), (4, "主机")] {
            assert_eq!(truncate_text("主机", width), short);
        }
    }

    #[test]
    fn messages_keep_what_can_be_pasted() {
        let wrap = |text: &str| wrap_message(text, "  ", "    ", 30);
        assert_eq!(wrap("a short one"), ["  a short one"]);
        assert_eq!(
            wrap("the logs stay there: `orchestrate down x.yaml` fetches them"),
            ["  the logs stay there:", "    `orchestrate down x.yaml`", "    fetches them"]
        );
        assert_eq!(wrap("orchestrate logs x.yaml --rank 2 --tail 100").len(), 1);
        assert_eq!(wrap("an open ` is no beginning of words that belong together").len(), 2);
        assert_eq!(
            wrap("运行仍在继续：`orchestrate down` 取回日志并删除"),
            ["  运行仍在继续：", "    `orchestrate down` 取回日", "    志并删除"]
        );
    }
}
