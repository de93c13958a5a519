"""Seeded texts that exercise a tokenizer: prose in many scripts, source code, emoji, numbers, odd
white space, control characters and samples of all of Unicode. Used by check_tokenizer.py."""

import random
import unicodedata

PROSE = """
The server answered in 12 milliseconds; nobody's request was dropped, and that's what we'd hoped for.
It's John's idea: they'll say I'm wrong, you've seen, we're late, SHE'LL CAN'T I'D 'tis o'clock.
Le garçon naïf a mangé une crème brûlée à l'été 1998, où l'œuvre s'achève peut-être aujourd'hui.
Über die Straße fährt ein großer Lastwagen; Größenwahn und Fußgängerübergänge sind häufig.
El niño pequeño comió piñas y ñoquis; ¿cuánto cuesta?, ¡qué sorpresa!, mañana lloverá según dicen.
A ação não começou, mas o coração já está em São Paulo; três irmãos vêm amanhã às 9h30.
Zażółć gęślą jaźń, powiedział źdźbło; w Łodzi mieszka Żaneta i śpi pięćdziesiąt kotów.
Příliš žluťoučký kůň úpěl ďábelské ódy nad řekou, kde šumí voda. Dôvera sa ťažko získava.
Árvíztűrő tükörfúrógép működik, ha a hűvös őszi eső elűzi a bőrönd színét.
Pijamalı hasta yağız şoföre çabucak güvendi; İstanbul'da ılık bir ağustos gecesi geçti.
Съешь же ещё этих мягких французских булок, да выпей чаю; завтра будет 25 градусов.
Щоб жити в мирі, їжак під'їхав до ґанку і з'їв яблуко. Ђорђе чита књигу у Нишу.
Η γρήγορη καφέ αλεπού πηδάει πάνω από το τεμπέλικο σκυλί, γιατί έτσι θέλει· ναι; όχι.
אחד שני שלוש ארבע, הילד הלך לבית הספר וקרא ספר על כוכבים. שָׁלוֹם עֲלֵיכֶם
ذهب الولد إلى المدرسة وقرأ كتابًا عن النجوم، ثم عاد في الساعة ٣:٤٥ مساءً. اَلسَّلَامُ عَلَيْكُمْ
این یک جملهٔ فارسی است که می‌خواهیم آن را بشکنیم؛ قیمت ۱۲۳۴ تومان بود. یہ اردو ہے۔
मैं आज बाज़ार गया था और वहाँ से पाँच किलो आम ख़रीदे। क्या आपको हिन्दी आती है? १२३
আমি বাংলায় গান গাই, আমি বাংলার গান গাই; আজ বৃষ্টি হবে। ১২৩৪
தமிழ் மொழி மிகவும் பழமையான மொழிகளில் ஒன்று; நான் பள்ளிக்குச் செல்கிறேன்.
తెలుగు భాష చాలా మధురమైనది. ಕನ್ನಡ ನಾಡು ಸುಂದರ. മലയാളം സംസാരിക്കുന്നവർ കേരളത്തിലാണ്.
ગુજરાતી ભાષા ਪੰਜਾਬੀ ਬੋਲੀ සිංහල භාෂාව ଓଡ଼ିଆ ଭାଷା
สวัสดีครับ วันนี้อากาศดีมาก เราไปกินข้าวกันไหม ๑๒๓ ພາສາລາວ ភាសាខ្មែរ မြန်မာဘာသာ
བོད་སྐད་ནི་ཁ་སྐད་གཅིག་རེད། ქართული ენა ძალიან ლამაზია. Հայերենը հնդեվրոպական լեզու է։ አማርኛ ቋንቋ ነው።
今天天气很好，我们去公园散步吧。他说：“你好，世界！”然后走了３公里。
快速的棕色狐狸跳過了懶惰的狗，這是一個測試。臺灣的天氣變化很大，價格為１２３元。
吾輩は猫である。名前はまだ無い。どこで生れたかとんと見当がつかぬ。カタカナとﾊﾝｶｸも混ぜる。
안녕하세요, 오늘은 날씨가 좋네요. 대한민국의 수도는 서울이며 인구는 약 950만 명입니다. 한글
Xin chào, hôm nay trời đẹp quá; chúng tôi đang học tiếng Việt ở thành phố Hồ Chí Minh năm 2024.
Kŝoforo diris, ke la ĉevalo manĝas ĝis la ŝipo ĵetos. Þetta er íslenska, og ðað er gott veður.
ᏣᎳᎩ ᎦᏬᏂᎯᏍᏗ ᐃᓄᒃᑎᑐᑦ ⵜⴰⵎⴰⵣⵉⵖⵜ ᠮᠣᠩᠭᠣᠯ ᠪᠢᠴᠢᠭ ߒߞߏ 𐌲𐌿𐍄𐌹𐍃𐌺 𐎠𐎼𐎹 𒀭𒈹 𓀀𓁐𓂀
∀x∈ℝ: ⌈x⌉ = −⌊−x⌋, ∑_{i=0}^{n} i² ≈ n³⁄3 ± ½, α∧¬β=¬(¬α∨β), 𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𝟘𝟙𝟚 Ⅷ ⅷ ①②③ ㊿ ½¾ ²³
""".strip().split("\n")

CODE = [
    "def fib(n):\n    a, b = 0, 1\n    while n > 0:\n        a, b = b, a + b\n        n -= 1\n    return a\n\n\n",
    "int main(int argc, char **argv) {\n\tfor (size_t i = 0; i < 10; ++i)\n\t\tprintf(\"%zu\\n\", i);\n\treturn 0;\n}\n",
    "SELECT u.id, COUNT(*) AS n FROM users u LEFT JOIN orders o ON o.uid=u.id WHERE u.x<>'it''s' GROUP BY 1;\n",
    "fn main() -> Result<(), Box<dyn Error>> {\r\n    let v: Vec<_> = (0..=9).map(|x| x * 2).collect();\r\n}\r\n",
    "<div class=\"a b\" onclick='f(1)'>&nbsp;<!-- note --></div>\n\n\n{\"k\": [1, 2.5e-10, null, true]}\n",
    "#!/bin/sh\nset -eu; for f in *.c; do echo \"$f\" | sed 's/\\.c$/.o/' >>\"${OUT:-/dev/null}\"; done # ok?\n",
    "const f = async ({a, ...rest}) => { await g(`x${a}`); return a ?? rest?.b !== 0xDEADBEEF; }; // TODO\n",
    "\\begin{align}\n  \\frac{\\partial L}{\\partial w} &= 2 \\\\\n\\end{align}\n| a | b |\n|---|:-:|\n**bold** _it_\n",
]

EMOJI = ["😀", "👩‍👩‍👧‍👦", "👍🏽", "🏳️‍🌈", "🇩🇪", "🇯🇵", "❤️", "👨🏿‍🚀", "1️⃣", "☎︎", "🧑🏻‍❤️‍💋‍🧑🏼", "🫠", "🪿", "🫩"]

SPACES = [" ", "  ", "   ", "\t", "\n", "\n\n", "\r\n", "\r", "\v", "\f", "\x1c", "\x85", "\xa0", "\u1680",
          "\u180e", "\u2000", "\u2003", "\u200a", "\u200b", "\u2028", "\u2029", "\u202f", "\u205f",
          "\u2060", "\u3000", "\ufeff", " \n ", "\n  ", " \t"]

ODD = ["'\u017f", "'S", "'LL", "'\u2019s", "\u00ad", "\u0130", "\u1e9e", "\u212a", "e\u0301\u0302", "\u0301",
       "\ufffd", "\uffff", "\U0010ffff", "\ue000", "\u202e", "\u061c", "_", "__", "...", "…", "--", "——", "!!!",
       "?!", "'", "''", "'re'", "\x00", "\x01", "\x7f", "\x1b[31m", "\x80", "\x9f", "<|im_end|>", "<|",
       "|>", "<|endoftext|", "<added>"]

ALPHABETS = [(0x20, 0x7f), (0xa0, 0x250), (0x300, 0x370), (0x370, 0x600), (0x600, 0x700), (0x900, 0xe00),
             (0x1e00, 0x2000), (0x2000, 0x2c00), (0x3000, 0x3100), (0x4e00, 0x9fff), (0xac00, 0xd7a4),
             (0xf900, 0xfb00), (0x10000, 0x10800), (0x1d400, 0x1d800), (0x1f300, 0x1fb00), (0x20000, 0x2a6e0)]


def number(rng):
    return rng.choice(["{}", "{:,}", "0x{:x}", "-{}", "{}%", "${}.00", "{:e}", "1{0}/2{0}"]).format(
        rng.randrange(10 ** rng.randrange(1, 15)))


def code_points(rng):
    low, high = rng.choice(ALPHABETS)
    return "".join(chr(rng.randrange(low, high)) for _ in range(rng.randrange(1, 30)))


def assigned(rng):
    while True:
        c = chr(rng.randrange(0x110000))
        if unicodedata.category(c) not in ("Cn", "Cs", "Co") or rng.random() < 0.02 and not 0xd800 <= ord(c) < 0xe000:
            return c


def fragment(rng, stable=False):
    """stable: the same with every version of Python, which knows other characters as assigned."""
    kind = rng.randrange(12)
    kind = 9 if stable and kind == 10 else kind
    if kind < 4:
        words = rng.choice(PROSE).split(" ")
        start = rng.randrange(len(words))
        return " ".join(words[start:start + rng.randrange(1, 20)])
    if kind == 4:
        return rng.choice(CODE)
    if kind == 5:
        return "".join(rng.choice(EMOJI) for _ in range(rng.randrange(1, 6)))
    if kind == 6:
        return number(rng)
    if kind == 7:
        return "".join(rng.choice(SPACES) for _ in range(rng.randrange(1, 8)))
    if kind == 8:
        return rng.choice(ODD)
    if kind == 9:
        return code_points(rng)
    if kind == 10:
        return "".join(assigned(rng) for _ in range(rng.randrange(1, 12)))
    return rng.choice("a=- .!\n\t0é字👍").__mul__(rng.randrange(1, 200))


def text(rng, num_fragments, stable=False):
    return "".join(fragment(rng, stable) + rng.choice(["", " ", " ", "\n"]) for _ in range(num_fragments))


def valid_texts(num_bytes, seed=1):
    """Texts of a few bytes to tens of kilobytes, num_bytes of UTF-8 in all."""
    rng = random.Random(seed)
    texts, used = PROSE + CODE + EMOJI + SPACES + ODD + [""], 0
    while used < num_bytes:
        texts.append(text(rng, int(2 ** rng.uniform(0, 8))))
        used += len(texts[-1].encode())
    return texts


def short_texts(count, seed=4):
    """Stable texts of up to some hundred characters, with U+FFFD for NUL, as a server reads them in JSON."""
    rng = random.Random(seed)
    texts = PROSE + CODE + EMOJI + SPACES + ODD
    texts = texts + [text(rng, rng.randrange(1, 9), stable=True) for _ in range(count - len(texts))]
    return [each.replace("\0", "\ufffd") for each in texts]


def invalid_texts(num_bytes, seed=2):
    """Byte strings that are mostly text, with bytes replaced, cut out and put in."""
    rng = random.Random(seed)
    texts, used = [bytes(range(256)), b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf4\x90\x80\x80"], 0
    while used < num_bytes:
        data = bytearray(text(rng, int(2 ** rng.uniform(0, 7))).encode())
        for _ in range(len(data) // 10 + 1):
            at = rng.randrange(len(data) + 1)
            data[at:at + rng.randrange(3)] = bytes(rng.randrange(256) for _ in range(rng.randrange(3)))
        texts.append(bytes(data))
        used += len(data)
    return texts


def all_code_points(seed=3):
    """Every code point but the surrogates, shuffled, in words with letters and blanks between."""
    rng = random.Random(seed)
    points = [chr(c) for c in range(0x110000) if not 0xd800 <= c < 0xe000]
    rng.shuffle(points)
    points = [p + rng.choice(["", "", "a", " ", "1", " b", "."]) for p in points]
    return ["".join(points[i:i + 1000]) for i in range(0, len(points), 1000)]
