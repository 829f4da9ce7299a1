//! A question in the middle of the screen, or on all of it where it is small.
//!
//! Uses `dialog`.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear};
use unicode_width::UnicodeWidthStr;

use crate::report::words;
use crate::tui::app::App;
use crate::tui::dialog::{Dialog, WIDTH};

use super::put;

/// Draws it.
pub(crate) fn draw(frame: &mut Frame<'_>, area: Rect, app: &App, dialog: &Dialog) {
    let label = |(key, label, _): &(&'static str, String, _)| format!("{:>5}  {label}", format!("[{key}]"));
    let mut text = dialog.text.clone();
    if app.tearing_down() {
        text.push(words::cut(&super::launch::waiting(app), WIDTH));
    }
    if let Some(word) = &dialog.word {
        text.push(String::new());
        text.push(format!("Type {} to confirm:  {}_", word.wanted, word.typed.text));
    }
    let texts = text.iter().map(|line| line.width());
    let wide = texts.chain(dialog.choices.iter().map(|choice| label(choice).width())).max().unwrap_or(0) + 4;
    let width = u16::try_from(wide).unwrap_or(u16::MAX).min(area.width);
    let rows = text.len() + dialog.choices.len() + 3;
    let height = u16::try_from(rows).unwrap_or(u16::MAX).min(area.height);
    let place = Rect { x: area.x + (area.width - width) / 2, y: area.y + (area.height - height) / 2, width, height };
    frame.render_widget(Clear, place);
    let framed = place.width > 8 && place.height > 4;
    let inner = if framed {
        let mut block = Block::bordered().title(format!(" {} ", dialog.title)).border_style(app.theme.accent());
        if app.theme.ascii {
            block = block.border_set(ASCII);
        }
        let inner = block.inner(place);
        frame.render_widget(block, place);
        inner
    } else {
        place
    };
    let room = usize::from(inner.width);
    let mut lines: Vec<Line<'static>> = Vec::new();
    // Where not all answers fit, the one that Enter gives is among those that do.
    let fit = usize::from(inner.height).saturating_sub(if framed { text.len() + 1 } else { usize::from(dialog.word.is_some()) }).max(1);
    let skip = (dialog.focus + 1).saturating_sub(fit);
    if framed {
        lines.extend(text.iter().map(|line| Line::raw(words::cut(&format!(" {}", app.clean(line)), room))));
        lines.push(Line::raw(""));
    } else if let (Some(_), Some(last)) = (&dialog.word, text.last()) {
        lines.push(Line::raw(words::cut(last, room)));
    }
    for (n, choice) in dialog.choices.iter().enumerate().skip(skip) {
        let span = Span::raw(words::cut(&label(choice), room));
        let line = Line::from(span);
        lines.push(match (n == dialog.focus, dialog.alive(choice.2, app.now)) {
            (true, _) => line.style(app.theme.chosen()),
            (false, true) => line,
            (false, false) => line.style(app.theme.dim()),
        });
    }
    put(frame, inner, lines);
}

/// A border of ASCII.
const ASCII: ratatui::symbols::border::Set<'static> = ratatui::symbols::border::Set {
    top_left: "+",
    top_right: "+",
    bottom_left: "+",
    bottom_right: "+",
    vertical_left: "|",
    vertical_right: "|",
    horizontal_top: "-",
    horizontal_bottom: "-",
};
