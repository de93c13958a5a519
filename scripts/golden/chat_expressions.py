"""Expressions and small templates that make_chat_template_cases.py evaluates: what chat templates use of Jinja, and
its corners. A line without a tag stands between braces.
"""
VARIABLES = {
    "user": {"name": "Ann", "age": 30, "admin": True},
    "list": [1, 2, 3],
    "text": "hello world",
    "unicode": "aé世😀z",
    "nested": {"a": {"b": [1, {"c": "x"}]}, "e": "é", "n": None, "t": True, "f": 1.5},
    "people": [{"name": "Bob", "age": 41, "admin": False}, {"name": "Ann", "age": 30, "admin": True},
               {"name": "Cid", "age": 41, "admin": True, "pet": {"name": "Rex"}}],
}

LITERALS_AND_ARITHMETIC = r'''
1 + 2 * 3 - 4
7 / 2
6 / 2
7 // 2
-7 // 2
7 % 3
-7 % 3
2 ** 10
2 ** -1
2 ** 3 ** 2
-2 ** 2
7.5 // 2
7.5 % 2
1e3
1.0
1.5e-7
123456789012345678
1e16
1e15
123456.789
0.1 + 0.2
1 / 3
10 / 5
1_000_000
0x1f + 0b101 + 0o17
3 * 'ab'
'ab' * 2
'ab' * 0
[1, 2] + [3]
[1] * 3
(1, 2)
(1,)
()
[]
{}
{'a': 1, 'b': [1, 2.5, none, true, 'x']}
[1, 'a', "it's", 'say "hi"', 'both \' and "', 'tab\t nl\n back\\ nul\x01 é 世 \u200b']
'a' 'b' "c"
'a' ~ 1 ~ none ~ true ~ 1.5 ~ [1]
true
True
none
None
false
not true
not 0
1 + true
true + true
-true
+5
- 5 + 2
(1 + 2) * 3
10 - 3 - 2
1 / 0
1 // 0
1 % 0
'a' + 1
1 + 'a'
none + 1
[1] + 'a'
'a' - 'b'
"\u00e9\n\x41\101"
'\'' ~ "\"" ~ '\q'
9223372036854775807
1 if true else 2
1 if false else 2
1 if false
'x' if (1 if false) is defined else 'y'
(1 if false) ~ 'x'
'''

COMPARISONS_AND_LOGIC = r'''
1 < 2
1 < 2 < 3
3 > 2 > 2
1 == 1.0
1 == true
'1' == 1
'a' < 'b'
'a' < 'B'
'é' > 'z'
[1, 2] == [1, 2]
[1, 2] < [1, 3]
(1, 2) == [1, 2]
{'a': 1} == {'a': 1}
{'a': 1, 'b': 2} == {'b': 2, 'a': 1}
none == none
none == false
1 < 'a'
none < 1
1 != 2
'a' in 'cat'
'' in 'cat'
1 in [1, 2]
3 not in [1, 2]
'a' in {'a': 1}
1 in 'a'
'a' in none
'x' in missing
true and false
'a' and 'b'
'' or 'b'
0 or none or 'c'
1 and 0 and 2
not 'a' or 'b'
not (1 and 0)
1 == 1 and 2 == 2
not 1 == 2
'a' == 'a' in ['a']
missing or 'x'
missing and 'x'
missing == missing
missing == none
missing is none
not missing
true == 1 == 1.0
'''

UNDEFINED_VALUES = r'''
missing
missing ~ 'x'
missing.attribute
missing['item']
missing()
missing + 1
user.missing
user.missing.more
user['missing']
user['missing'] is defined
user.name.missing is defined
missing is defined
missing is undefined
missing | default('x')
missing | d('x')
none | default('x')
none | default('x', true)
'' | default('x', boolean=true)
false | default('x')
missing | length
missing | list
missing | upper
missing | join(',')
missing | tojson
missing | string
missing | trim
missing | int
[missing]
{% for x in missing %}a{% else %}none{% endfor %}
{% if missing %}a{% else %}b{% endif %}
list[10]
list[10] is defined
list['a']
text[100]
text.missing
none.x
none['x']
none.x is defined
1.x
(1).x is defined
user.items.x
'''

ATTRIBUTES_ITEMS_AND_SLICES = r'''
user.name
user['name']
user.get('name')
user.get('missing')
user.get('missing', 'x')
user.items() | list
user.keys() | list
user.values() | list
user.items()
user.keys()
user.values()
user.name.upper()
list[0]
list[-1]
list.0
list[1:]
list[:2]
list[:-1]
list[::2]
list[::-1]
list[-2:]
list[5:]
list[3:1]
list[-100:100]
list[1:3:1]
list[::0]
text[0]
text[-1]
text[1:4]
text[::-1]
text[:-3]
unicode[0]
unicode[1:3]
unicode[::-1]
(1, 2, 3)[1:]
user[:1]
nested.a.b[1].c
nested['a']['b'][0]
list[true]
list[1.0]
{'a': 1}.a
{'items': 1}['items']
{1: 'a', 2.5: 'b', none: 'c', true: 'd'}
{1: 'a'}[1]
{1: 'a'}[1.0]
{'a': 1, 'a': 2}
user.update({'x': 1})
list.append(1)
list.pop()
user.copy().name
user.__class__
text.__class__
text._private
list.index(2)
list.index(99)
list.count(1)
list.copy()
(1, 2).count(1)
'''

METHODS_OF_STRINGS = r'''
'  ab  '.strip() ~ '|'
'  ab  '.lstrip() ~ '|'
'  ab  '.rstrip() ~ '|'
'xxabxx'.strip('x')
'xyabyx'.strip('xy')
'xxab'.lstrip('x')
'abxx'.rstrip('x')
'\u00a0\u2003a\x85\u2028'.strip()
'\u200ba'.strip() | length
'a b  c'.split()
'a b  c'.split(' ')
'a,b,c'.split(',', 1)
'a,b,c'.rsplit(',', 1)
'a,b,c'.split(',', maxsplit=1)
' a  b c '.split(none, 1)
''.split()
''.split(',')
'abc'.split('')
'a\nb\r\nc\rd'.splitlines()
'a\nb\n'.splitlines(true)
'abc'.startswith('ab')
'abc'.startswith(('x', 'a'))
'abc'.startswith('b', 1)
'abc'.endswith('bc')
'abc'.endswith(('x', 'y'))
'abc'.find('c')
'abc'.find('x')
'abcabc'.find('c', 3)
'abcabc'.rfind('c')
'abc'.index('x')
'abcabc'.count('bc')
'aaa'.count('aa')
'abc'.replace('b', 'x')
'aaaa'.replace('a', 'b', 2)
'abc'.replace('', '-')
'aBc dEf'.upper()
'aBc dEf'.lower()
'aBc dEf'.title()
"it's a dog's".title()
'aBc dEf'.capitalize()
'aBc dEf'.swapcase()
'ÄÖß é'.upper()
'ÄÖ É İ'.lower()
'ß'.capitalize()
'aß'.title()
'ab'.center(7, '*')
'ab'.ljust(5) ~ '|'
'ab'.rjust(5, '0')
'42'.zfill(5)
'-42'.zfill(5)
','.join(['a', 'b'])
','.join('abc')
','.join([1, 2])
'abc'.isalpha()
'ab1'.isalnum()
'12'.isdigit()
'1.2'.isdigit()
'²'.isdigit()
'12'.isdecimal()
'12'.isnumeric()
''.isalpha()
'  '.isspace()
'ab'.islower()
'AB'.isupper()
'Ab Cd'.istitle()
'abc'.isidentifier()
'a-b-c'.partition('-')
'a-b-c'.rpartition('-')
'abc'.partition('x')
'%s is %d'.format(1)
'{} and {}'.format(1, 'b')
'{0} {1} {0}'.format('a', 'b')
'{a} {b!r}'.format(a=1, b='x')
'{:>5}|{:<5}|{:^5}|{:05d}|{:.2f}'.format('a', 'b', 'c', 42, 3.14159)
'%s is %d, %.2f %5s|%-5s|%05d %x %%' % ('a', 3, 2.5, 'b', 'c', 42, 255)
'%s' % 'a'
'%s' % [1]
'%d' % 'a'
'abc'.removeprefix('ab')
'abc'.removesuffix('bc')
'abc'.removeprefix('x')
'a\tb'.expandtabs(4)
'abc'.encode()
'Straße'.casefold()
'abc'.nothing()
'\ta  b\n'.split()
'x' in 'xyz'.split('y')
'</think>' in 'a</think>b'
'a</think>b</think>c'.split('</think>')[-1].lstrip('\n')
'a</think>b'.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n')
'''

FILTERS = r'''
' a '|trim ~ '|'
'xax'|trim('x')
'aBc'|upper
'aBc'|lower
'hello wORLD'|title
"they're bill's"|title
'hELLO'|capitalize
'abc'|length
unicode|length
unicode|count
[1, 2]|length
{'a': 1}|length
5|length
none|length
[1, 2, 3]|first
[]|first
'abc'|first
[1, 2, 3]|last
[]|last
'abc'|last
[3, 1, 2]|sort
['b', 'A', 'c']|sort
['b', 'A', 'c']|sort(case_sensitive=true)
[3, 1, 2]|sort(reverse=true)
[1, 'a']|sort
people|sort(attribute='age')|map(attribute='name')|join(' ')
people|sort(attribute='name', reverse=true)|map(attribute='name')|join(' ')
[1, 2, 3]|join
[1, 2, 3]|join(', ')
['a', none, 1.5, true]|join('-')
people|join(', ', attribute='name')
'abc'|join('.')
5|join
[1, 2]|list
'abc'|list
{'a': 1}|list
(1, 2)|list
none|list
5|list
[1, 2, 3]|reverse|list
'abc'|reverse
[3, 1, 3, 2]|unique|list
['a', 'A', 'b']|unique|list
['a', 'A', 'b']|unique(case_sensitive=true)|list
[1, 2, 3]|sum
[1.5, 2]|sum
people|sum(attribute='age')
[1, 2]|sum(start=10)
[1, 5, 3]|max
[1, 5, 3]|min
[]|max
['a', 'C', 'b']|max
people|max(attribute='age')
[1, 2, 3, 4, 5]|batch(2)|list
[1, 2, 3, 4, 5]|batch(2, 0)|list
[1, 2, 3, 4, 5]|slice(2)|list
'42'|int
'4.7'|int
'abc'|int
'abc'|int(7)
'0x1f'|int(base=16)
'  12 '|int
none|int
4.9|int
-4.9|int
true|int
'1e3'|float
'abc'|float
'abc'|float(1.5)
3|float
-5|abs
-2.5|abs
'a'|abs
3.14159|round
3.14159|round(2)
2.5|round
3.5|round
2.1|round(method='ceil')
2.9|round(0, 'floor')
42|round
1234.5|round(-2)
42|string
none|string
[1, 'a']|string
1.0|string
'<b>&"\''|escape
'<b>&"\''|e
'<b>'|safe
'<b>'|safe + '<"\'&>'
'<' + '<b>'|safe
('<b>'|safe)|upper + '<'
('<b>'|safe)[1:] + '<'
('<b>'|safe) ~ '<'
('<b>'|safe).strip('<') + '<'
('<b>'|e)|e
'<'|e|forceescape
('a<b'|safe).split('<')[1] + '<'
('<'|safe) * 2 + '<'
'<'|safe is escaped
['<'|safe, '<']|join('<') ~ '<'
('<'|safe)|tojson + '<'
('%s'|safe) % '<'
('<'|safe)|trim + '<'
('<'|safe)|string + '<'
('<a'|safe)|replace('a', '<') + '<'
'<'|safe == '<'
'a b/c?d=é&f'|urlencode
'abc'|replace('b', 'x')
'aaa'|replace('a', 'b', 2)
42|replace('4', 'x')
'a\nb\nc'|indent
'a\nb\nc'|indent(2)
'a\n\nc'|indent(2, true)
'a\n\nc'|indent(2, blank=true)
'a\nb'|indent(width=3, first=true)
'a\nb'|indent('> ')
'hello big world'|truncate(9)
'hello big world'|truncate(9, true)
'hello big world'|truncate(9, true, '..', 0)
'hello'|truncate(5)
'hello big world again'|wordwrap(10)
'hello big world'|wordcount
'hello'|center(11)
'<p>a  <b>b</b></p>'|striptags
'%s-%s'|format('a', 1)
'%(x)s'|format(x=3)
people|map(attribute='name')|list
people|map(attribute='missing')|list
people|map(attribute='missing', default='x')|list
people|map(attribute='pet.name')|list
['a', 'b']|map('upper')|list
[' a ', 'b ']|map('trim')|map('upper')|join(',')
['ab', 'cb']|map('replace', 'b', 'x')|list
[1, 2, 3, 4]|select('odd')|list
[1, 2, 3, 4]|select('greaterthan', 2)|list
[1, 0, '', 'a', none]|select|list
[1, 2, 3, 4]|reject('even')|list
[1, 0, '', 'a', none]|reject|list
people|selectattr('admin')|map(attribute='name')|list
people|selectattr('age', 'gt', 30)|map(attribute='name')|list
people|selectattr('name', 'equalto', 'Ann')|list|length
people|selectattr('name', '==', 'Ann')|map(attribute='age')|first
people|selectattr('name', 'in', ['Ann', 'Cid'])|map(attribute='name')|join
people|selectattr('missing', 'defined')|list
people|selectattr('pet', 'undefined')|map(attribute='name')|list
people|rejectattr('admin')|map(attribute='name')|list
people|rejectattr('name', 'equalto', 'Ann')|map(attribute='name')|list
people|groupby('age')|list|length
{% for age, list in people|groupby('age') %}{{ age }}:{{ list|map(attribute='name')|join('+') }} {% endfor %}
user|items|list
user|dictsort
user|dictsort(by='value')
user|dictsort(reverse=true)
{'b': 1, 'A': 2}|dictsort
user|attr('name')
[1, 2]|random in [1, 2]
123456|filesizeformat
user|pprint
'abc'|nofilter
user|xmlattr
'http://a.b c'|urlize
[[1, 2], [3, 4]]|map('first')|list
[[1, 2], [3, 4]]|map('sum')|list
[[2, 1], [4, 3]]|map('sort')|map('join', '-')|list
['1', '2']|map('int')|sum
'a'|default('b')|upper ~ 'c'|upper
-1|abs
2 ** 2|string ~ 'x'
['x', 'y']|zip
'''

TOJSON = r'''
user|tojson
list|tojson
'a"b\\c\n\t/é世<>&\''|tojson
'\x01\x1f\x7f\u2028😀'|tojson
none|tojson
true|tojson
1.0|tojson
1e22|tojson
1.5e-7|tojson
12345678901234|tojson
[]|tojson
{}|tojson
(1, 2)|tojson
nested|tojson
nested|tojson(indent=2)
nested|tojson(2)
[]|tojson(indent=2)
{'a': {}, 'b': [], 'c': [[]]}|tojson(indent=4)
nested|tojson(separators=(',', ':'))
nested|tojson(indent=2, separators=(',', ': '))
nested|tojson(indent=1, sort_keys=true)
{'b': 1, 'a': {'d': 1, 'c': 2}}|tojson(sort_keys=true)
'é世😀'|tojson(ensure_ascii=true)
'é世😀'|tojson(true)
'é'|tojson(ensure_ascii=false)
{1: 'a', none: 'b', true: 'c', 2.5: 'd'}|tojson
user.items()|tojson
user.items()|list|tojson
missing|tojson
[missing]|tojson
range(3)|tojson
range(3)|list|tojson
'a'|tojson|length
user|tojson|safe
user|tojson(indent='--')
people|map(attribute='name')|list|tojson
'''

TESTS = r'''
1 is number
'1' is number
true is number
1 is integer
true is integer
1.0 is integer
1.0 is float
true is boolean
1 is boolean
'a' is string
1 is string
[1] is sequence
'a' is sequence
user is sequence
none is sequence
5 is iterable
'a' is iterable
user is iterable
missing is iterable
user is mapping
list is mapping
none is none
missing is none
4 is even
3 is odd
6 is divisibleby 3
6 is divisibleby(4)
1 is true
true is true
false is false
0 is false
'a' is lower
'A' is upper
1 is eq 1
1 is equalto 1
1 is == 1
1 is ne 2
1 is lt 2
2 is ge 2
1 is greaterthan 2
1 is in [1, 2]
'a' is in 'cat'
'a' is not in 'cat'
'a' is not string
user.name is callable
user.get is callable
raise_exception is callable
none is sameas none
'a' is sameas 'a'
'upper' is filter
'nofilter' is filter
'even' is test
'a' is escaped
1 is notest
not 1 is string
1 is string or true
user.missing is defined and user.missing
user.name is defined and user.name is string
'a' is string and 'b' is string
range(3) is iterable
range(3) is sequence
[] is iterable and [] is not string
missing is not defined
user is not none
'''

FUNCTIONS = r'''
range(3)
range(3)|list
range(1, 4)|list
range(5, 0, -2)|list
range(0)|list
range(1000000)|length
range(3)[1]
range(2, 8)[-1]
dict(a=1, b='x')
dict({'a': 1}, b=2)
dict([('a', 1)])
namespace(a=1).a
namespace(a=1)
strftime_now('%d %b %Y')
strftime_now('%Y-%m-%d %H:%M:%S')
strftime_now('%A, %B %e, %y %I:%M %p %j %%')
strftime_now('%-d/%-m %a %x %X')
raise_exception('no ' ~ 'way')
lipsum()|length > 0
cycler('a', 'b').next()
joiner(',')()
nofunction(1)
user.name()
'''

LOOPS = r'''
{% for x in list %}{{ x }},{% endfor %}
{% for x in list %}{{ loop.index }}/{{ loop.length }}:{{ loop.first }}{{ loop.last }} {% endfor %}
{% for x in list %}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }} {% endfor %}
{% for x in list %}[{{ loop.previtem }}|{{ loop.nextitem }}]{% endfor %}
{% for x in list if x > 1 %}{{ x }}{{ loop.index }}{{ loop.last }}{% endfor %}
{% for x in [] %}a{% else %}empty{% endfor %}
{% for x in list if x > 99 %}a{% else %}empty{% endfor %}
{% for k, v in user.items() %}{{ k }}={{ v }};{% endfor %}
{% for k in user %}{{ k }},{% endfor %}
{% for c in 'aé世' %}{{ c }},{% endfor %}
{% for a, b in [(1, 2), [3, 4]] %}{{ a }}{{ b }}{% endfor %}
{% for a, b in [1, 2] %}{{ a }}{% endfor %}
{% for a, b in [(1, 2, 3)] %}{{ a }}{% endfor %}
{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}
{% for k, v in user|items %}{{ loop.index }}{{ k }}{% endfor %}
{% for x in list %}{% if x == 2 %}{% break %}{% endif %}{{ x }}{% endfor %}
{% for x in list %}{% if x == 2 %}{% continue %}{% endif %}{{ x }}{% endfor %}
{% for x in list %}{% for y in list %}{{ loop.index }}{% break %}{% endfor %}{{ loop.index }} {% endfor %}
{% for x in list %}{% set outer = loop %}{% for y in [1] %}{{ outer.index }}{{ loop.index }} {% endfor %}{% endfor %}
{% for x in list %}{{ loop.cycle('a', 'b') }}{% endfor %}
{% for x in [1, 1, 2] %}{{ loop.changed(x) }} {% endfor %}
{% for x in list %}{{ loop.depth }}{{ loop.depth0 }}{% endfor %}
{% for x in [[1, [2]], [3]] recursive %}{% if x is number %}{{ x }}{% else %}({{ loop(x) }}){% endif %}{% endfor %}
{% for x in 5 %}{{ x }}{% endfor %}
{% for x in none %}{{ x }}{% endfor %}
{% for x in range(3) %}{{ x }}{% endfor %}
{% for x in list %}{% endfor %}{{ x is defined }}
{% set x = 1 %}{% for y in list %}{% set x = y %}{% endfor %}{{ x }}
{% set ns = namespace(x=1) %}{% for y in list %}{% set ns.x = ns.x + y %}{% endfor %}{{ ns.x }}
{% for x in list[1:] %}{{ x }}{{ loop.first }}{% endfor %}
{% for x in list|reverse %}{{ x }}{% endfor %}
{% for x in people|map(attribute='name') %}{{ x }}{{ loop.last }}{% endfor %}
{{ loop }}
{{ loop.index }}
{% for loop in [1] %}{{ loop }}{% endfor %}
{% for m in people %}{{ (people[loop.index0 - 1] if loop.index0 > 0 else {'name': '-'}).name }}{% endfor %}
{% for m in people if m.admin %}{{ m.name }}{% if not loop.last %}, {% endif %}{% endfor %}
'''

STATEMENTS = r'''
{% set x = 1 %}{{ x }}
{% set x, y = 1, 2 %}{{ x }}{{ y }}
{% set x, y = [1] %}{{ x }}
{% set x %}a{{ 1 + 1 }}b{% endset %}{{ x }}|{{ x is string }}
{% set x | upper %}abc{% endset %}{{ x }}
{% set user.name = 'x' %}{{ user.name }}
{% set ns = namespace() %}{% set ns.a = 1 %}{{ ns.a }}{{ ns.b is defined }}
{% set ns = namespace({'a': 1}, b=2) %}{{ ns.a }}{{ ns['b'] }}
{% set ns = namespace(_x=1) %}{{ ns._x }}
{% if 1 %}{% set x = 5 %}{% endif %}{{ x }}
{% if false %}{% set x = 5 %}{% endif %}{{ x is defined }}
{% if false %}a{% elif 1 %}b{% else %}c{% endif %}
{% if '' %}a{% elif [] %}b{% elif {} %}c{% elif 0.0 %}d{% else %}e{% endif %}
{% if user.name == 'Ann' and user.age >= 30 %}a{% endif %}
{% macro f(a, b=2) %}{{ a }}{{ b }}{% endmacro %}{{ f(1) }}{{ f(1, 3) }}{{ f(b=4, a=5) }}
{% macro f(a) %}{{ a }}{% endmacro %}{{ f() }}|
{% macro f(a) %}{{ a }}{% endmacro %}{{ f(1, 2) }}
{% macro f(a) %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ f(1, 2, c=3) }}
{% macro f(a) %}{% if a > 0 %}{{ a }}{{ f(a - 1) }}{% endif %}{% endmacro %}{{ f(3) }}
{% macro f() %}{{ caller() }}!{% endmacro %}{% call f() %}a{% endcall %}
{% macro f() %}{{ caller(1) }}!{% endmacro %}{% call(x) f() %}a{{ x }}{% endcall %}
{% macro f() %} a {% endmacro %}{{ f()|trim }}|{{ f() is string }}
{% macro f() %}{% endmacro %}{{ f.name }}{{ f.arguments }}
{% set y = 1 %}{% macro f() %}{{ y }}{% endmacro %}{% set y = 2 %}{{ f() }}
{% macro f(a, b=a) %}{{ b }}{% endmacro %}{{ f(1) }}
{% macro f(x) %}{% set ns.n = ns.n + x %}{% endmacro %}{% set ns = namespace(n=1) %}{{ f(2) }}{{ ns.n }}
{% filter upper %}abc{{ 'd' }}{% endfilter %}
{% filter trim %}  abc {% endfilter %}|
{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}{{ a is defined }}
{% with %}{% set a = 1 %}{{ a }}{% endwith %}
{% raw %}{{ x }}{% y %}{% endraw %}
{% raw -%}  a  {%- endraw %}|
{# comment {{ x }} #}a
{#- comment -#} a
{% generation %}a{{ 1 }}{% endgeneration %}
{% do list.append(1) %}
{% include 'x' %}
{% import 'x' as y %}
{% extends 'x' %}
{% block a %}b{% endblock %}
{% autoescape true %}{{ '<' }}{% endautoescape %}
{% nothing %}
{% if 1 %}a
{{ 1
{{ 1 + }}
{{ }}
{% endif %}
{% for x %}{% endfor %}
{{ 'a }}
{{ a b }}
{% set x = 1 %}{% set x = x + 1 %}{{ x }}
{% set a = [1, 2] %}{% set a = a + [3] %}{{ a }}
{% set d = dict(user, x=1) %}{{ d.x }}{{ d.name }}
{% set f = user.get %}{{ f('name') }}
{% for x in list %}{% macro f() %}{{ x }}{% endmacro %}{{ f() }}{% endfor %}
{% set m = people[0] %}{{ m['name'] + ': ' + m.age|string }}
{% set c = 'x' if missing is defined else 'y' %}{{ c }}
{%- set tool_calls = people | selectattr('admin') | list -%}{{ tool_calls|length }}
{% if 'a' not in user and user is mapping %}ok{% endif %}
{% if (1 if true else 0) == 1 %}a{% endif %}
'''

WHITE_SPACE = [
    "a\n{% if 1 %}\nb\n{% endif %}\nc", "a\n  {% if 1 %}\n  b\n  {% endif %}\n  c",
    "a  {%- if 1 -%}  b  {%- endif -%}  c", "a \n {{- 1 -}} \n b", "a {{+ 1 }}", "a\n  {%+ if 1 %}b{% endif %}",
    "a\n{% if 1 +%}\nb{% endif %}", "a\n{# c #}\nb", "a\n  {# c #}\nb", "a {# c #} b",
    "a\n\n{%- if 1 %}b{% endif %}\n", "a\n", "a\n\n", "\na", "{{ 1 }}\n", "{{ 1 }}\n\n",
    "{% if 1 %}\n\na{% endif %}\n", "x {% if 1 %} y {% endif %} z", "x\n \t{% if 1 %}y{% endif %}",
    "a\r\n{% if 1 %}\r\nb{% endif %}\r\nc", "{{ '\n' }}", "{{ 'a\nb' }}", "{{ 'a\r\nb' }}", "a{{ '' }}\n{{ '' }}b",
    "{% for x in [1, 2] %}\n  {{ x }}\n{% endfor %}\n", "{%- for x in [1, 2] %}\n  {{- x }}\n{%- endfor %}\n",
    "{% set x %}\na\n{% endset %}{{ x }}|", "{% macro f() %}\n a\n{% endmacro %}[{{ f() }}]",
    "{% raw %}\n a \n{% endraw %}|", "{{ 1 }}{# a\nb #}\n{{ 2 }}", "{#- a -#}\n b", "a\n {#- a #}\n b",
    "{%if 1%}a{%endif%}", "{%-if 1-%} a {%-endif-%}", "{{1}}{{'a'}}", "{{ {'a': {'b': 1}}.a.b }}", "{{ {'a': {}} }}",
    "{{ [[1, 2], [3]] }}", "{{ '}}' }}", "{% set x = '%}' %}{{ x }}", "{ {x} } {{ '{{' }}",
    "{% set x = {\n 'a': 1,\n 'b': [1,\n 2]} %}{{ x }}", "{{ [1, 2,] }}{{ (1, 2,) }}{{ {'a': 1,} }}",
    "  {{ 1 }}\n  {{ 2 }}", "\t{%- if 1 %} a{%- endif %}", "{% if 1 %}a{% endif %}\n\n\nb",
    "a{% if 1 -%}\n\n  b{% endif %}", "{{ 1 -}}\n\n  b", "a\n\n  {{- 1 }}", "a\n\n  {{ 1 }}",
    "line1\n{%- if false %}x{%- endif %}\nline2", "é\n  {% if 1 %}世{% endif %}\n",
]


def lines(text):
    for line in text.strip().split("\n"):
        yield line if "{%" in line or "{{" in line or "{#" in line else "{{ " + line + " }}"


GROUPS = (LITERALS_AND_ARITHMETIC, COMPARISONS_AND_LOGIC, UNDEFINED_VALUES, ATTRIBUTES_ITEMS_AND_SLICES, METHODS_OF_STRINGS, FILTERS,
          TOJSON, TESTS, FUNCTIONS, LOOPS, STATEMENTS)
EXPRESSIONS = [line for group in GROUPS for line in lines(group)] + WHITE_SPACE
